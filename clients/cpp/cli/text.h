/// The text of others on a terminal, and words for a shell.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

/// The text without what acts on a terminal: controls, marks that are not seen, changes of direction and bytes that are
/// not UTF-8 become U+FFFD.
inline std::string plain(std::string_view text) {
  using Range = std::pair<char32_t, char32_t>;
  constexpr Range kActing[] = {{0, 0x1f},        {0x7f, 0x9f},       {0x61c, 0x61c},        {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f},   {0xd800, 0xdfff},      {0xfeff, 0xfeff},
                               {0xfff9, 0xfffb}, {0xe0000, 0xe007f}, {0x110000, 0xffffffff}};
  // The least character of as many bytes as the first one has leading bits; one bit marks a later byte.
  constexpr std::array<char32_t, 5> kFirst{0, 0xffffffff, 0x80, 0x800, 0x10000};
  std::string out;
  for (std::size_t at = 0, length = 1; at < text.size(); at += length) {
    const auto first = static_cast<unsigned char>(text[at]);
    const auto ones = static_cast<std::size_t>(std::countl_one(first));
    const auto bytes = text.substr(at, std::max<std::size_t>(ones, 1));
    char32_t sign = first & (0x7fU >> ones);
    bool is_utf8 = ones < kFirst.size() && bytes.size() >= ones;
    for (const unsigned char byte : bytes.substr(1)) {
      is_utf8 = is_utf8 && (byte & 0xc0U) == 0x80;
      sign = sign << 6U | (byte & 0x3fU);
    }
    is_utf8 = is_utf8 && sign >= kFirst[ones];
    const auto acts = [sign](const Range& range) { return range.first <= sign && sign <= range.second; };
    length = is_utf8 ? bytes.size() : 1;
    out += is_utf8 && std::ranges::none_of(kActing, acts) ? bytes : "\ufffd";
  }
  return out;
}

/// A word as a shell reads it back.
inline std::string quoted(const std::string& word) {
  if (std::regex_match(word, std::regex("[A-Za-z0-9@%_+=:,./-]+"))) {
    return word;
  }
  return "'" + std::regex_replace(word, std::regex("'"), R"('\'')") + "'";
}

}  // namespace quire
