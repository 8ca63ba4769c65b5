/// What a shopper can type, and what comes of it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "quire/client.h"

namespace quire::cli {

/// The greater the code, the more it needs attention.
enum class Exit { kDone = 0, kRefused = 1, kUsage = 2, kUnreachable = 3, kUnknown = 4 };

/// Whether a word is the name of a command.
bool is_command(std::string_view word);

struct Answer {
  Exit exit = Exit::kDone;
  /// It is no answer of the store's.
  bool is_fault = false;
  std::string text = {};
  nlohmann::json json = {};
};

class Commands;
/// A command that was understood; nothing for one that leaves.
using Command = std::function<Answer(Commands&, const Call&)>;

/// Throws UsageError.
Command parse_command(const std::vector<std::string>& words);

/// Runs commands, and remembers what can be completed.
class Commands {
 public:
  explicit Commands(const Arguments& arguments) : arguments_(arguments), client_(options(arguments)) {}

  Answer run(const Command& command, const std::stop_token& stop);
  /// What can follow in place of the end of a line: where that starts, and the candidates.
  [[nodiscard]] std::pair<std::size_t, std::vector<std::string>> complete(std::string_view line) const;

  Answer ping(const Call& call);
  Answer topics(const std::string& near, const Call& call);
  Answer search(const std::string& topic, const Call& call);
  Answer lookup(std::int32_t id, const Call& call);
  Answer buy(std::int32_t id, std::int32_t quantity, const Call& call);

 private:
  [[nodiscard]] Answer unknown(std::int32_t id, std::int32_t quantity, const Purchase& purchase) const;
  void remember(const std::vector<Book>& books);

  Arguments arguments_;
  Client client_;
  std::set<std::string> ids_;
  std::set<std::string> topics_;
};

}  // namespace quire::cli
