#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <system_error>

#include "command.h"
#include "text.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::int32_t kRetriesMax = 1'000'000;
constexpr std::size_t kKeyBytesMax = 64;
constexpr double kTimeoutMaxMs = 24.0 * 60 * 60 * 1000;

bool is_digit(char each) { return each >= '0' && each <= '9'; }

milliseconds timeout(const std::string& text) {
  static const std::map<std::string_view, double> kUnits = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"min", 60'000}};
  const auto number = std::string_view{text}.substr(0, text.find_first_not_of("0123456789."));
  const auto unit = kUnits.find(std::string_view{text}.substr(number.size()));
  double amount = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), amount, std::chars_format::fixed);
  if (unit != kUnits.end() && error == std::errc() && end == number.end()) {
    if (const double time_ms = amount * unit->second; time_ms >= 1 && time_ms <= kTimeoutMaxMs) {
      return milliseconds(static_cast<std::int64_t>(time_ms));
    }
  }
  throw UsageError("--timeout is '" + text::escaped(text) +
                   "'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min");
}

std::uint32_t retries(const std::string& text) {
  const auto times = whole_number(text, 0, kRetriesMax);
  if (!times) {
    throw UsageError("--retries is '" + text::escaped(text) + "'; it must be a whole number from 0 to 1000000");
  }
  return static_cast<std::uint32_t>(*times);
}

/// A file of PEM with what is looked for.
std::string pem(const std::optional<std::string>& file, const char* what) {
  if (!file) {
    return {};
  }
  std::ifstream input(*file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(input), {});
  if (!input || text.find(what) == std::string::npos) {
    throw UsageError("cannot read " + text::escaped(*file));
  }
  return text;
}

/// Takes the address off the words, if the first is one: no command looks like an address, and a word that could be a
/// host is one if a command follows.
void take_address(Arguments& arguments) {
  auto& words = arguments.words;
  if (words.empty() || is_command(words.front())) {
    return;
  }
  const auto& first = words.front();
  if (first == "localhost" || first.find_first_of(":.[") != std::string::npos ||
      (words.size() > 1 && is_command(words[1]))) {
    arguments.address = first;
    words.erase(words.begin());
  }
}

}  // namespace

std::optional<std::int32_t> whole_number(std::string_view text, std::int32_t least, std::int32_t most) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (text.empty() || !is_digit(text.front()) || error != std::errc() || end != text.end() || number < least ||
      number > most) {
    return std::nullopt;
  }
  return number;
}

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  const std::map<std::string_view, bool*> switches = {
      {"--help", &arguments.help}, {"--version", &arguments.version}, {"--json", &arguments.json}};
  const std::map<std::string_view, std::function<void(const std::string&)>> values = {
      {"--timeout", [&](const auto& value) { arguments.timeout = timeout(value); }},
      {"--retries", [&](const auto& value) { arguments.retries = retries(value); }},
      {"--key", [&](const auto& value) { arguments.key = value; }},
      {"--token", [&](const auto& value) { arguments.token = value; }},
      {"--ca", [&](const auto& value) { arguments.ca = value; }},
      {"--certificate", [&](const auto& value) { arguments.certificate = value; }},
      {"--key-file", [&](const auto& value) { arguments.key_file = value; }}};
  if (const char* token = std::getenv("QUIRE_TOKEN")) {
    arguments.token = token;
  }
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--") {
      arguments.words.insert(arguments.words.end(), word + 1, words.end());
      break;
    }
    if (!word->starts_with('-') || *word == "-" || is_digit((*word)[1])) {
      arguments.words.push_back(*word);
      continue;
    }
    const auto name = std::string_view{*word}.substr(0, word->find('='));
    const bool has_value = name.size() < word->size();
    if (const auto on = switches.find(name); on != switches.end()) {
      if (has_value) {
        throw UsageError(std::string(name) + " takes no value");
      }
      *on->second = true;
      continue;
    }
    const auto flag = values.find(name);
    if (flag == values.end()) {
      throw UsageError("there is no flag '" + text::escaped(name) + "'; --help lists them");
    }
    if (!has_value && word + 1 == words.end()) {
      throw UsageError(std::string(name) + " wants a value");
    }
    flag->second(has_value ? word->substr(name.size() + 1) : *++word);
  }
  take_address(arguments);
  return arguments;
}

Options options(const Arguments& arguments) {
  if (const auto& key = arguments.key; key && (key->empty() || key->size() > kKeyBytesMax)) {
    throw UsageError("the idempotency key has " + std::to_string(key->size()) + " bytes; it must have 1 to 64");
  }
  if (arguments.certificate.has_value() != arguments.key_file.has_value()) {
    throw UsageError("--certificate and --key-file belong together; give both or neither");
  }
  if (!std::ranges::all_of(arguments.token, [](char each) { return each >= ' ' && each <= '~'; })) {
    throw UsageError("--token has characters that no token has");
  }
  Options options{.addresses = {}, .tls = {}, .token = arguments.token, .retries = arguments.retries};
  try {
    options.addresses = Address::parse_list(arguments.address);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  if (std::ranges::any_of(options.addresses, &Address::tls)) {
    std::optional<std::string> trusted = arguments.ca;
    if (const char* const file = std::getenv("SSL_CERT_FILE"); !trusted && file != nullptr) {
      trusted = file;
    }
    options.tls = {.roots = pem(trusted, "BEGIN CERTIFICATE"),
                   .certificate = pem(arguments.certificate, "BEGIN CERTIFICATE"),
                   .key = pem(arguments.key_file, "PRIVATE KEY-----")};
  }
  return options;
}

}  // namespace quire::cli
