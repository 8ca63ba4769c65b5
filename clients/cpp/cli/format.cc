#include "format.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "arguments.h"
#include "text.h"

namespace quire::cli {
namespace {

constexpr char32_t kJoiner = 0x200d;

std::size_t width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const auto character = text::take(text);
    if (!character) {
      return columns + text.size();
    }
    const auto code = static_cast<utf8proc_int32_t>(*character);
    const auto category = utf8proc_category(code);
    if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || *character == kJoiner) {
      continue;
    }
    columns += utf8proc_charwidth(code) == 2 ? 2 : 1;
  }
  return columns;
}

bool is_plain_in_shell(char each) {
  return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
         std::string_view("@%_-+=:,./").find(each) != std::string_view::npos;
}

std::string quoted(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain_in_shell)) {
    return word;
  }
  if (auto escaped = text::escaped(word); escaped != word) {
    return escaped;
  }
  std::string out = "'";
  for (const char each : word) {
    if (each == '\'') {
      out += R"('"'"')";
    } else {
      out += each;
    }
  }
  return out + '\'';
}

}  // namespace

std::string table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> cells(1);
  for (const auto& column : columns) {
    cells.front().push_back(column.head);
  }
  for (const auto& row : rows) {
    auto& line = cells.emplace_back();
    std::ranges::transform(row, std::back_inserter(line), &text::escaped);
  }
  std::vector<std::size_t> widths(columns.size());
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      widths[i] = std::max(widths[i], width(line[i]));
    }
  }
  std::string out;
  for (const auto& line : cells) {
    std::string shown;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string fill(widths[i] - width(line[i]), ' ');
      shown += (i > 0 ? "  " : "") + (columns[i].is_number ? fill + line[i] : line[i] + fill);
    }
    shown.resize(shown.find_last_not_of(' ') + 1);
    out += (out.empty() ? "" : "\n") + shown;
  }
  return out;
}

std::string json_line(const nlohmann::json& value) {
  const auto json = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  std::string_view rest = json;
  while (!rest.empty()) {
    const auto before = rest;
    const auto character = text::take(rest).value();
    if (!text::acts(character)) {
      out += before.substr(0, before.size() - rest.size());
      continue;
    }
    std::array<char, 16> escape{};
    const auto code = static_cast<unsigned>(character);
    if (code < 0x10000) {
      std::snprintf(escape.data(), escape.size(), "\\u%04x", code);
    } else {
      std::snprintf(escape.data(), escape.size(), "\\u%04x\\u%04x", 0xd7c0 + (code >> 10U), 0xdc00 + (code & 0x3ffU));
    }
    out += escape.data();
  }
  return out;
}

std::string quoted(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) {
    out += (out.empty() ? "" : " ") + quoted(word);
  }
  return out;
}

std::string price(std::int64_t cents) {
  auto digits = std::to_string(std::abs(cents));
  digits.insert(0, digits.size() < 3 ? 3 - digits.size() : 0, '0');
  return (cents < 0 ? "-" : "") + digits.insert(digits.size() - 2, ".");
}

bool is_blank(char32_t character) {
  return (character >= 0x9 && character <= 0xd) || character == ' ' || character == 0x85 || character == 0xa0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200a) || character == 0x2028 ||
         character == 0x2029 || character == 0x202f || character == 0x205f || character == 0x3000;
}

std::vector<std::string> split(std::string_view line) {
  // The first character, if it is a blank; its length is what is taken off `rest`.
  const auto begins_blank = [](std::string_view rest) { return is_blank(text::take(rest).value()); };
  std::vector<std::string> words;
  while (!line.empty()) {
    if (begins_blank(line)) {
      text::take(line);
      continue;
    }
    std::size_t end = 0;
    if (const char quote = line.front(); quote == '"' || quote == '\'') {
      line.remove_prefix(1);
      end = line.find(quote);
      while (end != std::string_view::npos && end + 1 < line.size() && !begins_blank(line.substr(end + 1))) {
        end = line.find(quote, end + 1);
      }
      if (end == std::string_view::npos) {
        throw UsageError(std::string("the quote ") + quote + " is not closed; close it, or leave it out");
      }
      words.emplace_back(line.substr(0, end));
      line.remove_prefix(end + 1);
      continue;
    }
    auto rest = line;
    while (!rest.empty() && !begins_blank(rest)) {
      text::take(rest);
    }
    end = line.size() - rest.size();
    words.emplace_back(line.substr(0, end));
    line = rest;
  }
  return words;
}

}  // namespace quire::cli
