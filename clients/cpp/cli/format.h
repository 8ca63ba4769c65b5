/// How answers look: tables, lines of JSON, and words for a shell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

struct Column {
  std::string head;
  bool is_number = false;
};

/// A line of heads and one for each row, without a line feed at the end. Cells are escaped.
std::string table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows);

/// One line that any terminal shows, and any reader of JSON reads.
std::string json_line(const nlohmann::json& value);

/// A command line for a shell.
std::string quoted(const std::vector<std::string>& words);

/// `42.00`.
std::string price(std::int64_t cents);

/// Whether a character separates words: White_Space of Unicode.
bool is_blank(char32_t character);

/// Splits a line at blanks. A word that begins with a quote goes on to the same quote before a blank or the end;
/// elsewhere a quote is an apostrophe. Throws UsageError.
std::vector<std::string> split(std::string_view line);

}  // namespace quire::cli
