/// The command line: one command from the arguments, or many from a prompt or standard input.

#include <editline/readline.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigwait and pthread_sigmask are POSIX's
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stop_token>
#include <thread>

#include "quire/client.h"
#include "text.h"

namespace quire::cli {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

/// The greater the code, the more it needs attention; no command is the least.
enum Exit { kTalk = -1, kDone = 0, kRefused = 1, kUsage = 2, kUnreachable = 3, kUnknown = 4, kInterrupted = 130 };

constexpr auto kNumberMax = std::numeric_limits<std::int32_t>::max();
constexpr int kRetriesMax = 1'000'000;
constexpr double kDaySeconds = 86'400;
constexpr auto kAbout =
    R"(Buys books of a Quire server, and asks what it has.
Without a command: a prompt on a terminal, else commands from standard input, one a line.
Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome is unknown.
Commands from standard input end with the highest of theirs.)";

/// Ctrl-C ends the command that runs; without one, the program.
class Interrupts {
 public:
  /// Call it before there are other threads, which leave the signal to this one.
  Interrupts() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([this, signals] {
      for (int signal = 0; sigwait(&signals, &signal) == 0;) {
        const std::scoped_lock lock(mutex_);
        if (!running_.request_stop()) {
          if (is_terminal_) {
            tcsetattr(STDIN_FILENO, TCSANOW, &terminal_);
          }
          _exit(kInterrupted);
        }
      }
    }).detach();
  }
  std::stop_token begin() {
    const std::scoped_lock lock(mutex_);
    running_ = std::stop_source();
    return running_.get_token();
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    running_ = std::stop_source(std::nostopstate);
  }

 private:
  std::mutex mutex_;
  std::stop_source running_{std::nostopstate};
  termios terminal_{};
  bool is_terminal_ = tcgetattr(STDIN_FILENO, &terminal_) == 0;
};

/// What stands on the command line.
struct Arguments {
  bool is_json = false;
  double seconds = 0;
  std::uint32_t retries = Options{}.retries;
  std::optional<std::string> key;
  std::string token, ca, certificate, key_file;
  std::string address = "127.0.0.1:10086";
  std::int32_t id = 0;
  std::int32_t quantity = 1;
  std::optional<std::int32_t> hold_seconds;
  std::int64_t number = 0;
  /// Of a reservation or a purchase, as an argument.
  std::string named;
  Words text;
};

/// A file of PEM with what is looked for; nothing without a file.
std::string pem(const std::string& file, const char* what) {
  std::ifstream input(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(input), {});
  if (!file.empty() && text.find(what) == std::string::npos) {
    throw std::invalid_argument("cannot read " + text::escaped(file));
  }
  return text;
}

Options options(const Arguments& arguments) {
  Options options{.addresses = Address::parse_list(arguments.address),
                  .tls = {},
                  .token = arguments.token,
                  .retries = arguments.retries};
  if (!std::ranges::all_of(arguments.token, [](char each) { return each >= ' ' && each <= '~'; })) {
    throw std::invalid_argument("--token has characters that no token has");
  }
  if (std::ranges::any_of(options.addresses, &Address::tls)) {
    options.tls = {.roots = pem(arguments.ca, "BEGIN CERTIFICATE"),
                   .certificate = pem(arguments.certificate, "BEGIN CERTIFICATE"),
                   .key = pem(arguments.key_file, "PRIVATE KEY-----")};
  }
  return options;
}

json to_json(const Book& book) {
  return {{"held", book.held},   {"id", book.id},       {"price_cents", book.price_cents},
          {"stock", book.stock}, {"title", book.title}, {"topic", book.topic}};
}

std::string line(const Book& book) {
  std::ostringstream out;
  out << std::setw(10) << book.id << std::setw(9) << book.price_cents / 100 << '.' << std::setfill('0') << std::setw(2)
      << book.price_cents % 100 << std::setfill(' ') << std::setw(8) << book.stock << " left  "
      << text::escaped(book.title) << " (" << text::escaped(book.topic) << ")\n";
  return out.str();
}

std::string cause(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "time is up";
    case grpc::StatusCode::CANCELLED:
      return "interrupted";
    default:
      return "the connection broke, or the server failed or is not available";
  }
}

/// A command line for a shell.
std::string quoted(const Words& words) {
  std::string out;
  for (const auto& word : words) {
    const auto is_plain = [](unsigned char each) {
      return std::isalnum(each) != 0 || std::strchr("@%_-+=:,./", each) != nullptr;
    };
    const bool stands = !word.empty() && std::ranges::all_of(word, is_plain);
    out +=
        (out.empty() ? "" : " ") + (stands ? word : '\'' + CLI::detail::find_and_replace(word, "'", R"('\'')") + '\'');
  }
  return out;
}

/// Completes the names of commands.
char* candidate(const char* typed, int count) {
  static constexpr std::array kNames = {"ping",    "topics",  "search",  "lookup", "buy", "receipt",
                                        "reserve", "confirm", "release", "help",   "exit"};
  for (const auto* const name : kNames) {
    if (std::string_view(name).starts_with(typed) && count-- == 0) {
      return strdup(name);
    }
  }
  return nullptr;
}

/// Commands on one client.
class Session {
 public:
  explicit Session(Words given) : given_(std::move(given)) {}

  /// Runs a command, with the words that were given before; gives its exit code.
  int run(const Words& words) {
    arguments_ = {};
    auto all = given_;
    all.insert(all.end(), words.begin(), words.end());
    CLI::App app(kAbout, "quire-client");
    app.set_version_flag("--version", "quire-client 0.1.0");
    app.require_subcommand(0, 1);
    auto* address = app.add_option("ADDRESS", arguments_.address,
                                   "HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between");
    app.add_flag("--json", arguments_.is_json, "print each answer as one line of JSON");
    app.add_option("--timeout", arguments_.seconds, "longest time for a call, as 500ms, 5s or 2min")
        ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 0.001}, {"s", 1}, {"min", 60}}))
        ->check(CLI::Range(0.001, kDaySeconds));
    app.add_option("--retries", arguments_.retries, "how often to send again; 3 if absent")
        ->check(CLI::Range(0, kRetriesMax));
    app.add_option("--key", arguments_.key,
                   "makes a purchase or reservation happen once, 1 to 64 bytes; random if absent");
    app.add_option("--token", arguments_.token, "for a server that asks for one; better in QUIRE_TOKEN")
        ->envname("QUIRE_TOKEN");
    app.add_option("--ca", arguments_.ca, "certificates in PEM to trust, instead of the system's")
        ->envname("SSL_CERT_FILE");
    auto* certificate =
        app.add_option("--certificate", arguments_.certificate, "certificate in PEM to show to the server");
    auto* key_file = app.add_option("--key-file", arguments_.key_file, "private key of --certificate");
    certificate->needs(key_file);
    key_file->needs(certificate);
    int exit = kDone;
    const auto add = [&](const char* name, const char* does, int (Session::*command)(const Call&)) {
      auto* sub = app.add_subcommand(name, does)->fallthrough();
      sub->final_callback([this, command, &exit] { exit = call(command); });
      return sub;
    };
    const auto number = CLI::Range(1, kNumberMax);
    add("ping", "tests the connection", &Session::ping);
    add("topics", "the topics, or those near a text", &Session::topics)->add_option("text", arguments_.text);
    add("search", "books of a topic", &Session::search)->add_option("topic", arguments_.text)->required();
    add("lookup", "one book", &Session::lookup)->add_option("id", arguments_.id)->required()->check(number);
    auto* buy = add("buy", "buys one copy, or as many as you say", &Session::buy);
    auto* reserve = add("reserve", "holds one copy, or as many as you say, for some seconds", &Session::reserve);
    for (auto* sub : {buy, reserve}) {
      sub->add_option("id", arguments_.id)->required()->check(number);
      sub->add_option("quantity", arguments_.quantity)->check(number);
    }
    reserve->add_option("seconds", arguments_.hold_seconds)->check(number);
    auto* receipt = add("receipt", "the receipt of a purchase, for `quire receipt FILE --key KEY`", &Session::receipt);
    receipt->add_option("number", arguments_.number)->required();
    for (auto* sub : {receipt, add("confirm", "buys what a reservation holds", &Session::confirm),
                      add("release", "gives back what a reservation holds", &Session::release)}) {
      sub->add_option("key", arguments_.named)->required();
    }
    std::string help;
    app.add_subcommand("help", "this text")->final_callback([&help] { std::cout << help; });
    app.add_subcommand("exit", "leaves");
    help = app.help();
    app.parse_complete_callback([&] {
      const auto subs = app.get_subcommands();
      const bool is_bare = subs.empty() && arguments_.address != "localhost" &&
                           arguments_.address.find_first_of(":.") == std::string::npos;
      const bool is_behind =
          !subs.empty() && address->count() > 0 &&
          std::ranges::find(all, arguments_.address) > std::ranges::find(all, subs.front()->get_name());
      if (is_bare || is_behind) {
        throw CLI::ExtrasError("quire-client", {arguments_.address});
      }
      options(arguments_);
    });
    try {
      app.parse(Words(all.rbegin(), all.rend()));
      return app.get_subcommands().empty() ? kTalk : exit;
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? kDone : kUsage;
    } catch (const std::invalid_argument& error) {
      std::cerr << "quire-client: " << error.what() << '\n';
      return kUsage;
    }
  }

  /// Runs the lines of a prompt or of standard input; the highest code is the end's, so that a script misses no
  /// failure.
  int talk() {
    const bool is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    rl_completion_entry_function = candidate;
    int worst = kDone;
    while (true) {
      std::string text;
      if (is_terminal) {
        const std::unique_ptr<char, decltype(&std::free)> typed(readline("quire client> "), &std::free);
        if (!typed) {
          return worst;
        }
        text = typed.get();
        add_history(typed.get());
      } else if (!std::getline(std::cin, text)) {
        return worst;
      }
      std::istringstream in(text);
      const Words words(std::istream_iterator<std::string>(in), {});
      if (words == Words{"exit"}) {
        return worst;
      }
      worst = words.empty() ? worst : std::max(worst, run(words));
    }
  }

 private:
  int call(int (Session::*command)(const Call&)) {
    if (!client_) {
      client_.emplace(options(arguments_));
    }
    Call call{.stop = interrupts_.begin()};
    if (arguments_.seconds > 0) {
      call.timeout = std::chrono::milliseconds(std::llround(arguments_.seconds * 1000));
    }
    int exit = kDone;
    try {
      exit = (this->*command)(call);
    } catch (const Fault& failed) {
      exit = fault(failed, json::object());
    }
    interrupts_.end();
    return exit;
  }

  int show(int exit, const json& said, const std::string& text) const {
    const bool is_fault = said.contains("status") && !arguments_.is_json;
    const auto line = said.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
    (is_fault ? std::cerr : std::cout) << (arguments_.is_json     ? line + '\n'
                                           : text.ends_with('\n') ? text
                                                                  : text + '\n')
                                       << std::flush;
    return exit;
  }

  int ping(const Call& call) {
    const auto start = std::chrono::steady_clock::now();
    const auto message = client_->ping(call);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return show(kDone, {{"message", message}, {"microseconds", std::llround(took.count())}, {"success", true}},
                text::escaped(message) + " (" + std::to_string(took.count() / 1000) + " ms)");
  }

  int topics(const Call& call) {
    auto listed = json::array();
    std::string text;
    for (const auto& topic : client_->topics(CLI::detail::join(arguments_.text, " "), call)) {
      listed.push_back({{"books", topic.books}, {"name", topic.name}});
      text += std::to_string(topic.books) + "  " + text::escaped(topic.name) + '\n';
    }
    return show(kDone, {{"success", true}, {"topics", listed}}, text.empty() ? "there is no such topic" : text);
  }

  int search(const Call& call) {
    const auto topic = CLI::detail::join(arguments_.text, " ");
    auto listed = json::array();
    std::string text;
    auto found = client_->search(topic, 0, call);
    for (const auto& book : found) {
      listed.push_back(to_json(book));
      text += line(book);
    }
    json said{{"books", listed}, {"message", found.message()}, {"success", true}};
    if (!listed.empty()) {
      return show(kDone, said, text);
    }
    text = text::escaped(found.message());
    try {
      for (const auto& near : client_->topics(topic, call)) {
        said["near"].push_back(near.name);
        text += "; near it: " + text::escaped(near.name);
      }
    } catch (const Fault&) {
      // A server that cannot say which topics are near has answered the search all the same.
      said.erase("near");
    }
    return show(kDone, said, text);
  }

  int lookup(const Call& call) {
    const auto found = client_->lookup(arguments_.id, call);
    json said{{"book", nullptr}, {"message", found.message}, {"success", found.book.has_value()}};
    if (!found.book) {
      return show(kRefused, said, text::escaped(found.message));
    }
    said["book"] = to_json(*found.book);
    return show(kDone, said, line(*found.book));
  }

  /// A call with a key; a fault is shown with it.
  template <class Made>
  int once(const std::string& key, const Made& made) {
    try {
      return made();
    } catch (const Fault& failed) {
      return fault(failed, {{"key", key}});
    }
  }

  int buy(const Call& call) {
    const auto key = arguments_.key.value_or(random_key());
    return once(key,
                [&] { return show(client_->buy(arguments_.id, {.quantity = arguments_.quantity, .key = key}, call)); });
  }

  int show(const Purchase& purchase) {
    const auto& key = purchase.key;
    if (const auto* doubt = std::get_if<Unknown>(&purchase.outcome)) {
      Words words = {"buy", std::to_string(arguments_.id)};
      if (arguments_.quantity != 1) {
        words.push_back(std::to_string(arguments_.quantity));
      }
      return unknown(*doubt, key, "book " + std::to_string(arguments_.id) + " was bought", "buys", {"--key", key},
                     words);
    }
    static constexpr std::array kNames = {"BOUGHT", "SOLD_OUT", "TOO_FEW", "NO_SUCH_BOOK"};
    const std::string name = purchase.is_outcome_said ? kNames.at(purchase.outcome.index()) : "UNSPECIFIED";
    const bool is_bought = std::holds_alternative<Bought>(purchase.outcome);
    json said{{"key", key},
              {"message", purchase.message},
              {"outcome", "BUY_OUTCOME_" + name},
              {"purchase_number", purchase.number},
              {"replayed", purchase.replayed},
              {"stock_left", nullptr},
              {"success", is_bought}};
    if (purchase.stock_left) {
      said["stock_left"] = *purchase.stock_left;
    }
    return show(is_bought ? kDone : kRefused, said,
                text::escaped(purchase.message) + " (purchase " + std::to_string(purchase.number) + ')' +
                    (purchase.replayed ? "; this key was sent before, nothing was bought again" : ""));
  }

  int reserve(const Call& call) {
    const auto key = arguments_.key.value_or(random_key());
    const auto id = std::to_string(arguments_.id);
    const auto seconds = arguments_.hold_seconds;
    Words words = {"reserve", id};
    if (arguments_.quantity != 1 || seconds) {
      words.push_back(std::to_string(arguments_.quantity));
    }
    if (seconds) {
      words.push_back(std::to_string(*seconds));
    }
    return once(key, [&] {
      const auto time = seconds ? std::optional(std::chrono::seconds(*seconds)) : std::nullopt;
      const Order order{.quantity = arguments_.quantity, .key = key};
      return show(client_->reserve(arguments_.id, order, time, call), "book " + id + " was reserved", {"--key", key},
                  words);
    });
  }

  int confirm(const Call& call) { return settle(&Client::confirm, "confirm", "confirmed", call); }
  int release(const Call& call) { return settle(&Client::release, "release", "released", call); }

  int settle(Reservation (Client::*method)(const std::string&, const Call&) const, const std::string& command,
             const std::string& done, const Call& call) {
    const auto& key = arguments_.named;
    return once(key, [&] {
      return show((*client_.*method)(key, call), "the reservation was " + done, {}, {command, key});
    });
  }

  int show(const Reservation& made, const std::string& what, const Words& flags, const Words& words) {
    if (const auto* doubt = std::get_if<Unknown>(&made.outcome)) {
      return unknown(*doubt, made.key, what, "does", flags, words);
    }
    static constexpr std::array kNames = {"UNSPECIFIED", "HELD",    "BOUGHT",       "RELEASED",           "EXPIRED",
                                          "SOLD_OUT",    "TOO_FEW", "NO_SUCH_BOOK", "NO_SUCH_RESERVATION"};
    const std::string name = kNames.at(made.outcome.index());
    json said{{"id", made.id},
              {"key", made.key},
              {"message", made.message},
              {"number", made.number},
              {"outcome", "RESERVATION_OUTCOME_" + name},
              {"quantity", made.quantity},
              {"replayed", made.replayed},
              {"stock_left", nullptr},
              {"success", made.success},
              {"until_ms", made.until_ms}};
    if (made.stock_left) {
      said["stock_left"] = *made.stock_left;
    }
    const bool is_held = std::holds_alternative<Held>(made.outcome);
    const bool is_by_call = made.replayed && !std::holds_alternative<Expired>(made.outcome);
    return show(made.success ? kDone : kRefused, said,
                text::escaped(made.message) + (is_held ? " (key " + text::escaped(made.key) + ')' : "") +
                    (is_by_call ? "; an earlier call did it" : ""));
  }

  int receipt(const Call& call) {
    const auto found = client_->receipt(arguments_.number, arguments_.named, call);
    json said{
        {"log_key", nullptr}, {"message", found.message}, {"receipt", nullptr}, {"success", found.receipt.has_value()}};
    if (!found.receipt) {
      return show(kRefused, said, text::escaped(found.message));
    }
    said.update({{"log_key", found.receipt->log_key}, {"receipt", found.receipt->text}});
    std::string text;
    std::istringstream lines(found.receipt->text);
    for (std::string line; std::getline(lines, line);) {
      text += text::escaped(line) + '\n';
    }
    return show(kDone, said, text);
  }

  /// Shows the command that asks for the outcome of a call with a key.
  int unknown(const Unknown& doubt, const std::string& key, const std::string& what, const std::string& does,
              const Words& flags, const Words& call) {
    Words words = {"quire-client"};
    words.insert(words.end(), flags.begin(), flags.end());
    if (arguments_.is_json) {
      words.emplace_back("--json");
    }
    for (const auto& [flag, file] :
         {std::pair("--ca", arguments_.ca), std::pair("--certificate", arguments_.certificate),
          std::pair("--key-file", arguments_.key_file)}) {
      if (!file.empty()) {
        words.insert(words.end(), {flag, file});
      }
    }
    words.push_back(arguments_.address);
    words.insert(words.end(), call.begin(), call.end());
    const auto command = quoted(words);
    const auto message = "it is not known whether " + what + ": " + cause(doubt.code);
    return show(kUnknown,
                {{"command", command},
                 {"key", key},
                 {"message", message},
                 {"outcome", "UNKNOWN"},
                 {"status", code_name(doubt.code)},
                 {"success", false}},
                message + "; this asks, and " + does + " nothing twice:\n    " + text::escaped(command));
  }

  int fault(const Fault& fault, json said) {
    std::string message = fault.what();
    const auto* unreachable = dynamic_cast<const Unreachable*>(&fault);
    if (unreachable != nullptr && unreachable->was_sent()) {
      message = arguments_.address + " did not answer: " + cause(fault.code());
    }
    said.update({{"message", message},
                 {"outcome", unreachable != nullptr ? "UNREACHABLE" : "REFUSED"},
                 {"status", code_name(fault.code())},
                 {"success", false}});
    return show(unreachable != nullptr ? kUnreachable : kRefused, said, text::escaped(message));
  }

  Words given_;
  Arguments arguments_;
  std::optional<Client> client_;
  Interrupts interrupts_;
};

}  // namespace
}  // namespace quire::cli

int main(int count, char** arguments) {
  // A reader that has gone ends the output, not a purchase.
  signal(SIGPIPE, SIG_IGN);
  // Faults are told here, in words of the user's.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  quire::cli::Session session({arguments + 1, arguments + count});
  const int exit = session.run({});
  return exit == quire::cli::kTalk ? session.talk() : exit;
}
