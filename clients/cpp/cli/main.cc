/// The command line: one command from the arguments, or many from a prompt or standard input.

#include <editline/readline.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigwait and pthread_sigmask are POSIX's
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "connect.h"
#include "quire/wire/bookstore.pb.h"
#include "text.h"

namespace quire {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Book, held, id, price_cents, stock, title, topic)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Topic, books, name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Reservation, id, number, quantity, success, until_ms)

namespace {

using CLI::detail::join;
using nlohmann::json;
using Words = std::vector<std::string>;

/// The greater the code, the more it needs attention; no command is the least.
enum Exit { kTalk = -1, kDone = 0, kRefused = 1, kUsage = 2, kUnreachable = 3, kUnknown = 4, kInterrupted = 130 };

constexpr auto kAbout =
    R"(Buys books of a Quire server, and asks what it has.
Without a command: a prompt on a terminal, else commands from standard input, one a line.
Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome is unknown.)";

/// The command that Ctrl-C ends, if there is one.
std::atomic<std::shared_ptr<std::stop_source>> running;

/// Call it before there are other threads, which leave the signal to this one.
void take_interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
      const auto command = running.load();
      if (!command || !command->request_stop()) {
        rl_deprep_terminal();
        _exit(kInterrupted);
      }
    }
  }).detach();
}

std::string line(const Topic& topic) { return std::to_string(topic.books) + "  " + plain(topic.name); }

std::string line(const Book& book) {
  std::ostringstream out;
  out << std::setw(10) << book.id << std::setw(9) << book.price_cents / 100 << '.' << std::setfill('0') << std::setw(2)
      << book.price_cents % 100 << std::setfill(' ') << std::setw(8) << book.stock << " left  " << plain(book.title)
      << " (" << plain(book.topic) << ")";
  return out.str();
}

template <class T>
std::string lines(const std::vector<T>& items) {
  return join(items, static_cast<std::string (*)(const T&)>(line), "\n");
}

/// One command line.
class Command {
 public:
  /// The client is made for the first of several commands.
  explicit Command(std::optional<Client>& client) : client_(client) {}

  /// Gives the exit code.
  int run(const Words& words) {
    CLI::App app(kAbout, "quire-client");
    add_flags(app, words);
    add_commands(app);
    try {
      app.parse(Words(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == kDone ? kDone : kUsage;
    } catch (const std::invalid_argument& error) {
      std::cerr << "quire-client: " << plain(error.what()) << '\n';
      return kUsage;
    }
    return exit_;
  }

 private:
  void add_flags(CLI::App& app, const Words& words) {
    app.set_version_flag("--version", "quire-client 0.1.0");
    app.add_flag("--json", is_json_, "print each answer as one line of JSON");
    app.add_option("--key", key_, "makes a purchase or reservation happen once, 1 to 64 bytes; random if absent");
    connect_.add_to(app);
    app.add_option("ADDRESS", address_, "HOST:PORT, a host, :PORT, http://…, https://…, or several with commas");
    app.parse_complete_callback([this, &app, &words] {
      const auto commands = app.get_subcommands();
      const auto place = [&words](const std::string& word) { return std::ranges::find(words, word); };
      const bool is_address = commands.empty()
                                  ? address_ == "localhost" || address_.find_first_of(":.") != std::string::npos
                                  : place(address_) == words.end() || place(address_) < place(commands[0]->get_name());
      if (!is_address) {
        throw CLI::ExtrasError("quire-client", {address_});
      }
      if (!client_) {
        client_.emplace(connect_.options(address_));
      }
    });
  }

  void add_commands(CLI::App& app) {
    const auto add = [&](const char* name, const char* does, int (Command::*command)()) {
      auto* sub = app.add_subcommand(name, does)->fallthrough();
      sub->final_callback([this, sub, command] { exit_ = call(*sub, command); });
      return sub;
    };
    add("ping", "tests the connection", &Command::ping);
    add("topics", "the topics, or those near a text", &Command::topics)->add_option("text", text_);
    add("search", "books of a topic", &Command::search)->add_option("topic", text_)->required();
    auto* buy = add("buy", "buys one copy, or as many as you say", &Command::buy);
    auto* reserve = add("reserve", "holds one copy, or as many as you say, for some seconds", &Command::reserve);
    auto* receipt = add("receipt", "the receipt of a purchase, for `quire receipt FILE --key KEY`", &Command::receipt);
    const auto number = CLI::Range(1, std::numeric_limits<std::int32_t>::max());
    for (auto* sub : {add("lookup", "one book", &Command::lookup), buy, reserve}) {
      sub->add_option("id", id_)->required()->check(number);
    }
    for (auto* sub : {buy, reserve}) {
      sub->add_option("quantity", quantity_)->check(number);
    }
    const auto hold = [this](std::int32_t seconds) { hold_.emplace(seconds); };
    reserve->add_option_function<std::int32_t>("seconds", hold)->check(number);
    receipt->add_option("number", number_)->required();
    for (auto* sub : {receipt, add("confirm", "buys what a reservation holds", &Command::confirm),
                      add("release", "gives back what a reservation holds", &Command::release)}) {
      sub->add_option("key", named_)->required();
    }
    app.add_subcommand("help", "this text")->silent()->parse_complete_callback([] { throw CLI::CallForHelp(); });
    app.add_subcommand("exit", "leaves")->silent()->final_callback([] { throw CLI::Success(); });
    app.require_subcommand(0, 1);
  }

  int call(const CLI::App& typed, int (Command::*command)()) {
    const auto stop = std::make_shared<std::stop_source>();
    call_ = {.timeout = connect_.timeout, .stop = stop->get_token()};
    running = stop;
    asked_ = {typed.get_name()};
    for (const auto* argument : typed.get_options()) {
      std::ranges::copy(argument->results(), std::back_inserter(asked_));
    }
    try {
      return (this->*command)();
    } catch (const Unreachable& fault) {
      return failed(kUnreachable, "UNREACHABLE", fault.code(), fault.what());
    } catch (const Fault& fault) {
      return failed(kRefused, "REFUSED", fault.code(), fault.what());
    }
  }

  int ping() {
    const auto start = std::chrono::steady_clock::now();
    const auto message = client_->ping(call_);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return show({{"message", message}, {"microseconds", std::llround(took.count())}, {"success", true}},
                plain(message) + " (" + std::to_string(took.count() / 1000) + " ms)");
  }

  int topics() {
    std::vector<Topic> topics;
    std::ranges::copy(client_->topics(join(text_, " "), call_), std::back_inserter(topics));
    return show({{"success", true}, {"topics", topics}}, topics.empty() ? "there is no such topic" : lines(topics));
  }

  int search() {
    const auto topic = join(text_, " ");
    auto found = client_->search(topic, 0, call_);
    std::vector<Book> books;
    std::ranges::copy(found, std::back_inserter(books));
    json said{{"books", books}, {"message", found.message()}, {"success", true}};
    if (!books.empty()) {
      return show(said, lines(books));
    }
    auto text = plain(found.message());
    Words near;
    try {
      std::ranges::transform(client_->topics(topic, call_), std::back_inserter(near), &Topic::name);
    } catch (const Fault&) {
      // The search has its answer, even from a server without the call for topics.
    }
    if (!near.empty()) {
      said["near"] = near;
      text += "; near it: " + join(near, plain, ", ");
    }
    return show(said, text);
  }

  int lookup() {
    const auto [book, message] = client_->lookup(id_, call_);
    return show({{"book", book ? json(*book) : json()}, {"message", message}, {"success", book.has_value()}},
                book ? line(*book) : plain(message));
  }

  int receipt() {
    const auto [receipt, message] = client_->receipt(number_, named_, call_);
    json said{{"log_key", nullptr}, {"message", message}, {"receipt", nullptr}, {"success", receipt.has_value()}};
    if (receipt) {
      said.update({{"log_key", receipt->log_key}, {"receipt", receipt->text}});
    }
    return show(said, join(CLI::detail::split(receipt ? receipt->text : message, '\n'), plain, "\n"));
  }

  int buy() {
    const auto made = client_->buy(id_, order(), call_);
    const auto name = bookstore::BuyOutcome_Name(static_cast<int>(made.outcome.index()));
    const bool is_bought = std::holds_alternative<Bought>(made.outcome);
    return show(made, {{"outcome", name}, {"purchase_number", made.number}, {"success", is_bought}}, made.replayed,
                is_bought && made.number > 0 ? " (purchase " + std::to_string(made.number) + ')' : "");
  }

  int reserve() { return show(client_->reserve(id_, order(), hold_, call_)); }
  int confirm() { return show(client_->confirm(sent_ = named_, call_)); }
  int release() { return show(client_->release(sent_ = named_, call_)); }

  int show(const Reservation& made) const {
    json said = made;
    said["outcome"] = bookstore::ReservationOutcome_Name(static_cast<int>(made.outcome.index()));
    return show(made, said, made.replayed && !std::holds_alternative<Expired>(made.outcome),
                std::holds_alternative<Held>(made.outcome) ? " (key " + plain(made.key) + ')' : "");
  }

  Order order() {
    sent_ = key_ ? *key_ : random_key();
    return {.quantity = quantity_, .key = sent_};
  }

  /// Shows what came of a purchase or a reservation, or the command that asks for it.
  template <class Made>
  int show(const Made& made, json said, bool is_replay, const std::string& more) const {
    const auto* doubt = std::get_if<Unknown>(&made.outcome);
    if (doubt == nullptr) {
      said.update({{"key", made.key}, {"message", made.message}, {"replayed", made.replayed}});
      said["stock_left"] = made.stock_left ? json(*made.stock_left) : json();
      return show(said, plain(made.message) + more + (is_replay ? "; the answer to an earlier call" : ""));
    }
    Words again{"quire-client"};
    const auto add = [&again](bool is_wanted, const Words& words) {
      std::copy(words.begin(), is_wanted ? words.end() : words.begin(), std::back_inserter(again));
    };
    add(named_.empty(), sent_.starts_with('-') ? Words{"--key=" + sent_} : Words{"--key", sent_});
    add(is_json_, {"--json"});
    add(true, connect_.files());
    add(true, {address_, asked_[0]});
    add(named_.starts_with('-'), {"--"});
    add(true, Words(asked_.begin() + 1, asked_.end()));
    const auto message = "it is not known whether '" + join(asked_, " ") + "' was done: " + doubt->message;
    return failed(kUnknown, "UNKNOWN", doubt->code, message, join(again, quoted, " "));
  }

  int failed(int exit, const char* outcome, grpc::StatusCode code, const std::string& message,
             const std::string& again = "") const {
    json said{{"message", message}, {"outcome", outcome}, {"status", code_name(code)}, {"success", false}};
    auto text = plain(message);
    if (!sent_.empty()) {
      said["key"] = sent_;
    }
    if (!again.empty()) {
      said["command"] = again;
      text += "; this asks, and does nothing twice:\n    " + plain(again);
    }
    show(said, text);
    return exit;
  }

  int show(const json& said, const std::string& text) const {
    const bool is_fault = said.contains("status") && !is_json_;
    const auto line = said.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
    (is_fault ? std::cerr : std::cout) << (is_json_ ? line : text) << '\n' << std::flush;
    return said.at("success").get<bool>() ? kDone : kRefused;
  }

  std::optional<Client>& client_;
  int exit_ = kTalk;
  bool is_json_ = false;
  Call call_;
  Connect connect_;
  std::optional<std::string> key_;
  /// The key that was sent, and that which is an argument of the command.
  std::string sent_, named_;
  std::string address_ = "127.0.0.1:10086";
  std::int32_t id_ = 0, quantity_ = 1;
  std::optional<std::chrono::seconds> hold_;
  std::int64_t number_ = 0;
  Words text_;
  /// The command and its arguments, as they were typed.
  Words asked_;
};

/// Reads the next line of a prompt or of standard input; false behind the last.
bool read(std::string& line) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return static_cast<bool>(std::getline(std::cin, line));
  }
  // Tab does nothing, as there is no completion.
  rl_attempted_completion_function = [](const char*, int, int) -> char** {
    rl_attempted_completion_over = 1;
    return nullptr;
  };
  const std::unique_ptr<char, decltype(&std::free)> typed(readline("quire client> "), &std::free);
  line = typed ? typed.get() : "";
  add_history(line.c_str());
  return typed != nullptr;
}

/// Runs each line; the highest code is the end's, so that a script misses no failure.
int talk(std::optional<Client>& client, const Words& given) {
  int worst = kDone;
  for (std::string line; read(line);) {
    auto all = given;
    std::ranges::copy(CLI::detail::split_up(line), std::back_inserter(all));
    if (all.size() == given.size() + 1 && all.back() == "exit") {
      break;
    }
    worst = all.size() == given.size() ? worst : std::max(worst, Command(client).run(all));
    running.store(nullptr);
  }
  return worst;
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) {
  // A reader that has gone ends the output, not a purchase.
  signal(SIGPIPE, SIG_IGN);
  // Faults are printed here, in words of the user's.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  quire::take_interrupts();
  const quire::Words given(arguments + 1, arguments + count);
  std::optional<quire::Client> client;
  const int exit = quire::Command(client).run(given);
  return exit == quire::kTalk ? quire::talk(client, given) : exit;
}
