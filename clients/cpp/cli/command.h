/// What a shopper can type, and what comes of it.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "arguments.h"
#include "quire/client.h"

namespace quire::cli {

/// The greater the code, the more it needs attention.
enum class Exit { kDone = 0, kRefused = 1, kUsage = 2, kUnreachable = 3, kUnknown = 4 };

/// A command that was understood.
struct Help {};
struct Leave {};
struct Ping {};
struct Topics {
  std::string near;
};
struct Search {
  std::string topic;
};
struct Look {
  std::int32_t id;
};
struct Buy {
  std::int32_t id;
  std::int32_t quantity;
};
using Command = std::variant<Help, Leave, Ping, Topics, Search, Look, Buy>;

/// Whether a word is the name of a command.
bool is_command(std::string_view word);

/// Throws UsageError.
Command parse_command(const std::vector<std::string>& words);

struct Answer {
  Exit exit = Exit::kDone;
  /// It is no answer of the store's.
  bool is_fault = false;
  std::string text = {};
  nlohmann::json json = {};
};

/// Runs commands, and remembers what can be completed.
class Commands {
 public:
  explicit Commands(const Arguments& arguments) : arguments_(arguments), client_(options(arguments)) {}

  Answer run(const Command& command, const std::stop_token& stop);
  /// What can follow in place of what is typed, from the start of which word on.
  [[nodiscard]] std::pair<std::size_t, std::vector<std::string>> complete(std::string_view line) const;

 private:
  Answer answer(const Help& help, const Call& call);
  Answer answer(const Leave& leave, const Call& call);
  Answer answer(const Ping& ping, const Call& call);
  Answer answer(const Topics& topics, const Call& call);
  Answer answer(const Search& search, const Call& call);
  Answer answer(const Look& look, const Call& call);
  Answer answer(const Buy& buy, const Call& call);
  [[nodiscard]] Answer fault(const Fault& fault, Exit exit, bool was_sent) const;
  [[nodiscard]] Answer unknown(const Buy& buy, const Purchase& purchase) const;
  void remember(const std::vector<Book>& books);

  Arguments arguments_;
  Client client_;
  std::set<std::string> ids_;
  std::set<std::string> topics_;
};

}  // namespace quire::cli
