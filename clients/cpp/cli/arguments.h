/// What stands on the command line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "quire/client.h"

namespace quire::cli {

/// The command line or a command was not understood.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Arguments {
  bool help = false;
  bool version = false;
  bool json = false;
  std::optional<std::chrono::milliseconds> timeout;
  std::uint32_t retries = Options{}.retries;
  std::optional<std::string> key;
  std::string token;
  std::optional<std::string> ca;
  std::optional<std::string> certificate;
  std::optional<std::string> key_file;
  /// As it was given.
  std::string address = "127.0.0.1:10086";
  /// The words of a command; none if commands come from standard input.
  std::vector<std::string> words;
};

/// Reads the words behind the program's name. Throws UsageError.
Arguments parse_arguments(const std::vector<std::string>& words);

/// How to reach the servers that the arguments name; reads certificates. Throws UsageError.
Options options(const Arguments& arguments);

/// An optional `+`, then ASCII digits: a number from `least` to `most`, or nothing.
std::optional<std::int32_t> whole_number(std::string_view text, std::int32_t least, std::int32_t most);

}  // namespace quire::cli
