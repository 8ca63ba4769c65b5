#include "command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "format.h"
#include "text.h"

namespace quire::cli {
namespace {

using nlohmann::json;

constexpr auto kNumberMax = std::numeric_limits<std::int32_t>::max();
/// The most ids, and the most topics, that are kept for completion.
constexpr std::size_t kSeenMax = 10'000;
constexpr std::size_t kCandidatesMax = 100;

struct Line {
  std::string_view name;
  std::string_view usage;
  std::string_view does;
};
constexpr std::array<Line, 7> kCommands = {{
    {"ping", "ping", "tests the connection"},
    {"topics", "topics [text]", "the topics, or those near a text"},
    {"search", "search <topic>", "books of a topic"},
    {"lookup", "lookup <id>", "one book"},
    {"buy", "buy <id> [quantity]", "buys one copy, or as many as you say"},
    {"help", "help", "this list; ? as well"},
    {"exit", "exit", "leaves; quit as well"},
}};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    out += (word == words.begin() + 1 ? "" : " ") + *word;
  }
  return out;
}

std::int32_t book_id(const std::string& text) {
  const auto id = whole_number(text, 1, kNumberMax);
  if (!id) {
    throw UsageError("id is '" + text::escaped(text) + "'; it must be a whole number from 1 to 2147483647");
  }
  return *id;
}

std::int32_t copies(const std::string& text) {
  const auto quantity = whole_number(text, 1, kNumberMax);
  if (!quantity) {
    throw UsageError("quantity is '" + text::escaped(text) + "'; it must be a whole number from 1");
  }
  return *quantity;
}

json to_json(const Book& book) {
  return {{"id", book.id},
          {"price_cents", book.price_cents},
          {"stock", book.stock},
          {"title", book.title},
          {"topic", book.topic}};
}

std::string book_table(const std::vector<Book>& books) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(books.size());
  for (const auto& book : books) {
    rows.push_back(
        {std::to_string(book.id), book.title, book.topic, std::to_string(book.stock), price(book.price_cents)});
  }
  return table({{"id", true}, {"title"}, {"topic"}, {"stock", true}, {"price", true}}, rows);
}

std::string_view cause(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "time is up";
    case grpc::StatusCode::CANCELLED:
      return "interrupted";
    case grpc::StatusCode::UNKNOWN:
      return "the server failed";
    default:
      return "the connection broke, or the server is not available";
  }
}

Answer fault_answer(const Fault& fault, const std::string& address) {
  std::string message = fault.what();
  const auto* unreachable = dynamic_cast<const Unreachable*>(&fault);
  if (unreachable != nullptr) {
    message = unreachable->was_sent() ? address + " did not answer: " + std::string(cause(fault.code()))
                                      : address + " cannot be reached; is a server running there?";
  }
  return {.exit = unreachable != nullptr ? Exit::kUnreachable : Exit::kRefused,
          .is_fault = true,
          .text = text::escaped(message),
          .json = {{"message", message},
                   {"outcome", unreachable != nullptr ? "UNREACHABLE" : "REFUSED"},
                   {"status", code_name(fault.code())},
                   {"success", false}}};
}

/// Text, also where answers are JSON.
Answer help() {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(kCommands.size());
  for (const auto& line : kCommands) {
    rows.push_back({std::string(line.usage), std::string(line.does)});
  }
  return {.text = table({{"command"}, {"does"}}, rows)};
}

std::string_view outcome_name(const Purchase& purchase) {
  if (!purchase.is_outcome_said) {
    return "BUY_OUTCOME_UNSPECIFIED";
  }
  static constexpr std::array<std::string_view, 4> kNames = {"BUY_OUTCOME_BOUGHT", "BUY_OUTCOME_SOLD_OUT",
                                                             "BUY_OUTCOME_TOO_FEW", "BUY_OUTCOME_NO_SUCH_BOOK"};
  return kNames.at(purchase.outcome.index());
}

/// Those of a set that begin with what is typed, and that a terminal shows as they are.
void add_fitting(std::vector<std::string>& found, const std::set<std::string>& known, std::string_view typed,
                 const std::string& quote) {
  for (auto at = known.lower_bound(std::string(typed)); at != known.end() && at->starts_with(typed); ++at) {
    if (found.size() < kCandidatesMax && text::escaped(*at) == *at) {
      found.emplace_back(quote).append(*at).append(quote);
    }
  }
}

}  // namespace

bool is_command(std::string_view word) {
  return word == "?" || word == "quit" || std::ranges::find(kCommands, word, &Line::name) != kCommands.end();
}

Command parse_command(const std::vector<std::string>& words) {
  const auto& name = words.front();
  const auto count = words.size();
  if (name == "ping" && count == 1) {
    return [](Commands& commands, const Call& call) { return commands.ping(call); };
  }
  if (name == "topics") {
    return [near = joined(words)](Commands& commands, const Call& call) { return commands.topics(near, call); };
  }
  if (name == "search" && count > 1) {
    return [topic = joined(words)](Commands& commands, const Call& call) { return commands.search(topic, call); };
  }
  if (name == "lookup" && count == 2) {
    return [id = book_id(words[1])](Commands& commands, const Call& call) { return commands.lookup(id, call); };
  }
  if (name == "buy" && (count == 2 || count == 3)) {
    const auto id = book_id(words[1]);
    const auto quantity = count == 3 ? copies(words[2]) : 1;
    return [id, quantity](Commands& commands, const Call& call) { return commands.buy(id, quantity, call); };
  }
  if ((name == "help" || name == "?") && count == 1) {
    return [](Commands& /*commands*/, const Call& /*call*/) { return help(); };
  }
  if ((name == "exit" || name == "quit") && count == 1) {
    return nullptr;
  }
  const auto other = name == "?" ? "help" : name == "quit" ? "exit" : name;
  const auto* const known = std::ranges::find(kCommands, other, &Line::name);
  if (known == kCommands.end()) {
    throw UsageError("there is no command '" + text::escaped(name) + "'; help lists them");
  }
  throw UsageError("usage: " + std::string(known->usage));
}

Answer Commands::run(const Command& command, const std::stop_token& stop) {
  try {
    return command(*this, {.timeout = arguments_.timeout, .stop = stop});
  } catch (const Fault& fault) {
    return fault_answer(fault, arguments_.address);
  }
}

Answer Commands::ping(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  const auto message = client_.ping(call);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  std::array<char, 32> shown{};
  std::snprintf(shown.data(), shown.size(), " (%.2f ms)", took.count() / 1000);
  return {.text = text::escaped(message) + shown.data(),
          .json = {{"message", message}, {"microseconds", std::llround(took.count())}, {"success", true}}};
}

Answer Commands::topics(const std::string& near, const Call& call) {
  std::vector<std::vector<std::string>> rows;
  json listed = json::array();
  for (const auto& topic : client_.topics(near, call)) {
    rows.push_back({topic.name, std::to_string(topic.books)});
    listed.push_back({{"books", topic.books}, {"name", topic.name}});
    if (topics_.size() < kSeenMax) {
      topics_.insert(topic.name);
    }
  }
  auto text = !rows.empty()  ? table({{"topic"}, {"books", true}}, rows)
              : near.empty() ? "there are no topics"
                             : "no topic is near '" + text::escaped(near) + '\'';
  return {.text = std::move(text), .json = {{"success", true}, {"topics", std::move(listed)}}};
}

Answer Commands::search(const std::string& topic, const Call& call) {
  std::vector<Book> books;
  json listed = json::array();
  auto found = client_.search(topic, 0, call);
  for (auto& book : found) {
    listed.push_back(to_json(book));
    books.push_back(std::move(book));
  }
  remember(books);
  Answer answer{.json = {{"books", std::move(listed)}, {"message", found.message()}, {"success", true}}};
  if (!books.empty()) {
    answer.text = book_table(books);
    return answer;
  }
  answer.text = text::escaped(found.message());
  std::string named;
  try {
    for (const auto& near : client_.topics(topic, call)) {
      answer.json["near"].push_back(near.name);
      named += (named.empty() ? "; near it: '" : ", '") + text::escaped(near.name) + '\'';
    }
  } catch (const Fault&) {
    // A server that cannot say which topics are near has answered the search all the same.
    answer.json.erase("near");
    named.clear();
  }
  answer.text += named;
  return answer;
}

Answer Commands::lookup(std::int32_t id, const Call& call) {
  const auto found = client_.lookup(id, call);
  if (!found.book) {
    return {.exit = Exit::kRefused,
            .text = text::escaped(found.message),
            .json = {{"book", nullptr}, {"message", found.message}, {"success", false}}};
  }
  remember({*found.book});
  return {.text = book_table({*found.book}),
          .json = {{"book", to_json(*found.book)}, {"message", found.message}, {"success", true}}};
}

Answer Commands::buy(std::int32_t id, std::int32_t quantity, const Call& call) {
  const auto key = arguments_.key ? *arguments_.key : random_key();
  Purchase purchase;
  try {
    purchase = client_.buy(id, {.quantity = quantity, .key = key}, call);
  } catch (const Fault& fault) {
    auto answer = fault_answer(fault, arguments_.address);
    answer.json["key"] = key;
    return answer;
  }
  if (std::holds_alternative<Unknown>(purchase.outcome)) {
    return unknown(id, quantity, purchase);
  }
  const bool is_bought = std::holds_alternative<Bought>(purchase.outcome);
  Answer answer{.exit = is_bought ? Exit::kDone : Exit::kRefused, .text = text::escaped(purchase.message)};
  if (is_bought) {
    answer.text += " (purchase " + std::to_string(purchase.number) + ')';
  }
  if (purchase.replayed) {
    answer.text += "; this key was sent before, nothing was bought again";
  }
  answer.json = {{"key", key},
                 {"message", purchase.message},
                 {"outcome", outcome_name(purchase)},
                 {"purchase_number", purchase.number},
                 {"replayed", purchase.replayed},
                 {"stock_left", nullptr},
                 {"success", is_bought}};
  if (purchase.stock_left) {
    answer.json["stock_left"] = *purchase.stock_left;
  }
  return answer;
}

Answer Commands::unknown(std::int32_t id, std::int32_t quantity, const Purchase& purchase) const {
  std::vector<std::string> words = {"quire-client", "--key", purchase.key};
  if (arguments_.json) {
    words.emplace_back("--json");
  }
  for (const auto& [flag, file] : {std::pair("--ca", arguments_.ca), std::pair("--certificate", arguments_.certificate),
                                   std::pair("--key-file", arguments_.key_file)}) {
    if (file) {
      words.insert(words.end(), {flag, *file});
    }
  }
  words.insert(words.end(), {arguments_.address, "buy", std::to_string(id)});
  if (quantity != 1) {
    words.push_back(std::to_string(quantity));
  }
  const auto command = quoted(words);
  const auto code = std::get<Unknown>(purchase.outcome).code;
  const auto message = [&](const std::string& key) {
    return "it is not known whether book " + std::to_string(id) + " was bought: " + std::string(cause(code)) +
           "\nthe purchase has the key " + key + "; this asks for its outcome and buys nothing twice:\n    " + command;
  };
  return {.exit = Exit::kUnknown,
          .is_fault = true,
          .text = message(text::escaped(purchase.key)),
          .json = {{"command", command},
                   {"key", purchase.key},
                   {"message", message(purchase.key)},
                   {"outcome", "UNKNOWN"},
                   {"status", code_name(code)},
                   {"success", false}}};
}

void Commands::remember(const std::vector<Book>& books) {
  for (const auto& book : books) {
    if (ids_.size() < kSeenMax) {
      ids_.insert(std::to_string(book.id));
    }
    if (topics_.size() < kSeenMax) {
      topics_.insert(book.topic);
    }
  }
}

std::pair<std::size_t, std::vector<std::string>> Commands::complete(std::string_view line) const {
  std::vector<std::string> found;
  const auto name = line.substr(0, line.find(' '));
  if (name.size() == line.size()) {
    for (const auto& command : kCommands) {
      if (command.name.starts_with(name)) {
        found.emplace_back(command.name);
      }
    }
    return {0, found};
  }
  const auto start = std::min(line.find_first_not_of(' ', name.size()), line.size());
  auto typed = line.substr(start);
  std::string quote;
  if (typed.starts_with('"') || typed.starts_with('\'')) {
    quote = typed.front();
    typed.remove_prefix(1);
  }
  if (name == "search" || name == "topics") {
    add_fitting(found, topics_, typed, quote);
  } else if (name == "lookup" || name == "buy") {
    add_fitting(found, ids_, typed, quote);
  }
  return {start, found};
}

}  // namespace quire::cli
