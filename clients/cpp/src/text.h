/// Text of others, which may hold characters that act on a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::text {

/// Takes the first character off a text; nothing if it is not UTF-8.
std::optional<char32_t> take(std::string_view& rest);

/// Whether a character does something to a terminal instead of being shown: controls, changes of direction, line
/// separators, and marks and tags that are not seen.
bool acts(char32_t character);

/// The text in one line, such characters as `\n` or `\u{1b}`.
std::string escaped(std::string_view text);

}  // namespace quire::text
