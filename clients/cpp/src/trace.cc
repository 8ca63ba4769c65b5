#include "trace.h"

#include <algorithm>
#include <cstddef>

namespace quire {
namespace {

constexpr std::size_t kStateBytesMax = 512;
constexpr std::ptrdiff_t kMembersMax = 32;
/// Of a key or a value.
constexpr std::size_t kPartBytesMax = 256;
constexpr std::string_view kKeyMarks = "_*/@-";
constexpr std::string_view kHexDigits = "0123456789abcdef";

/// True for `VERSION-TRACE-SPAN-FLAGS`; versions after the first may have more, behind another dash.
bool is_parent(std::string_view parent) {
  constexpr std::string_view kForm = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
  const auto fits = [](char byte, char form) {
    return form == '-' ? byte == '-' : kHexDigits.find(byte) != std::string_view::npos;
  };
  const auto has_id = [parent](std::size_t from, std::size_t to) {
    return parent.substr(from, to - from).find_first_not_of('0') != std::string_view::npos;
  };
  const auto first = parent.substr(0, kForm.size());
  const auto more = parent.substr(first.size());
  return std::ranges::equal(first, kForm, fits) && (more.empty() || (more[0] == '-' && !first.starts_with("00"))) &&
         !first.starts_with("ff") && has_id(3, 35) && has_id(36, 52);
}

bool is_key(std::string_view key) {
  const auto is_alphanumeric = [](char byte) { return ('a' <= byte && byte <= 'z') || ('0' <= byte && byte <= '9'); };
  const auto is_legal = [&](char byte) {
    return is_alphanumeric(byte) || kKeyMarks.find(byte) != std::string_view::npos;
  };
  return !key.empty() && key.size() <= kPartBytesMax && is_alphanumeric(key[0]) && std::ranges::all_of(key, is_legal);
}

bool is_value(std::string_view value) {
  const auto is_legal = [](char byte) { return ' ' <= byte && byte <= '~' && byte != '='; };
  return !value.empty() && value.size() <= kPartBytesMax && std::ranges::all_of(value, is_legal);
}

/// True for `KEY=VALUE`, perhaps with spaces around it: the metadata of gRPC has no tabs.
bool is_member(std::string_view member) {
  member.remove_prefix(std::min(member.find_first_not_of(' '), member.size()));
  member = member.substr(0, member.find_last_not_of(' ') + 1);
  const auto equals = member.find('=');
  return equals != std::string_view::npos && is_key(member.substr(0, equals)) && is_value(member.substr(equals + 1));
}

}  // namespace

bool is_valid_trace(std::string_view traceparent, std::string_view tracestate) {
  if (tracestate.size() > kStateBytesMax || std::ranges::count(tracestate, ',') >= kMembersMax ||
      !is_parent(traceparent)) {
    return false;
  }
  for (auto comma = tracestate.find(','); comma != std::string_view::npos; comma = tracestate.find(',')) {
    if (!is_member(tracestate.substr(0, comma))) {
      return false;
    }
    tracestate.remove_prefix(comma + 1);
  }
  return is_member(tracestate);
}

}  // namespace quire
