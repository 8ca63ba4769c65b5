#include "text.h"

#include <array>
#include <charconv>
#include <cstdint>

namespace quire::text {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool is_in(char32_t character, char32_t first, char32_t last) { return character >= first && character <= last; }

}  // namespace

std::optional<char32_t> take(std::string_view& rest) {
  // The least character of each length; shorter forms of it are not UTF-8.
  static constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const auto first = byte_at(rest, 0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || rest.size() < length) {
    return std::nullopt;
  }
  char32_t character = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = byte_at(rest, i);
    if ((next & 0xc0U) != 0x80) {
      return std::nullopt;
    }
    character = character << 6U | (next & 0x3fU);
  }
  if (character < kLeast.at(length) || character > 0x10ffff || is_in(character, 0xd800, 0xdfff)) {
    return std::nullopt;
  }
  rest.remove_prefix(length);
  return character;
}

bool acts(char32_t character) {
  return character < 0x20 || is_in(character, 0x7f, 0x9f) || character == 0x61c || character == 0x200b ||
         is_in(character, 0x200e, 0x200f) || is_in(character, 0x2028, 0x202e) || is_in(character, 0x2060, 0x206f) ||
         character == 0xfeff || is_in(character, 0xfff9, 0xfffb) || is_in(character, 0xe0000, 0xe007f);
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto before = text;
    const auto character = take(text);
    if (!character) {
      out += "\\x";
      out += kDigits[byte_at(text, 0) >> 4U];
      out += kDigits[byte_at(text, 0) & 0xfU];
      text.remove_prefix(1);
    } else if (!acts(*character)) {
      out += before.substr(0, before.size() - text.size());
    } else if (*character == '\t' || *character == '\r' || *character == '\n') {
      out += '\\';
      out += *character == '\t' ? 't' : *character == '\r' ? 'r' : 'n';
    } else {
      std::array<char, 8> digits{};
      auto* const end = std::to_chars(digits.begin(), digits.end(), static_cast<std::uint32_t>(*character), 16).ptr;
      out.append("\\u{").append(digits.begin(), end).append("}");
    }
  }
  return out;
}

}  // namespace quire::text
