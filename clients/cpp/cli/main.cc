/// The command line: one command from the arguments, or many from standard input.

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigwait and pthread_sigmask are POSIX's
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "command.h"
#include "format.h"
#include "help.h"
#include "prompt.h"
#include "text.h"

namespace quire::cli {
namespace {

constexpr int kInterruptedExit = 130;

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
        if (!running_ || !running_->request_stop()) {
          _exit(kInterruptedExit);
        }
        was_interrupted_ = true;
      }
    }).detach();
  }

  std::stop_token begin() {
    const std::scoped_lock lock(mutex_);
    return running_.emplace().get_token();
  }
  /// Whether the command was interrupted.
  bool end() {
    const std::scoped_lock lock(mutex_);
    running_.reset();
    return std::exchange(was_interrupted_, false);
  }

 private:
  std::mutex mutex_;
  std::optional<std::stop_source> running_;
  bool was_interrupted_ = false;
};

void say(std::FILE* to, const std::string& text) {
  std::fprintf(to, "%s\n", text.c_str());
  std::fflush(to);
}

void show(const Answer& answer, bool as_json) {
  if (as_json && !answer.json.is_null()) {
    say(stdout, json_line(answer.json));
  } else {
    say(answer.is_fault ? stderr : stdout, answer.text);
  }
}

class Session {
 public:
  Session(const Arguments& arguments, Interrupts& interrupts)
      : is_json_(arguments.json), commands_(arguments), interrupts_(interrupts) {}

  Exit run(const Command& command) {
    const auto answer = commands_.run(command, interrupts_.begin());
    was_interrupted_ = interrupts_.end();
    show(answer, is_json_);
    return answer.exit;
  }

  /// Runs what standard input says, and gives the highest code, so that a script misses no failure.
  Exit run_input() {
    const bool is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    const auto lines = open_lines(is_terminal, [this](std::string_view line) { return commands_.complete(line); });
    auto worst = Exit::kDone;
    while (is_terminal || !was_interrupted_) {
      auto exit = Exit::kUsage;
      try {
        const auto line = lines->next();
        if (!line) {
          break;
        }
        const auto words = split(*line);
        if (words.empty()) {
          continue;
        }
        const auto command = parse_command(words);
        if (!command) {
          break;
        }
        exit = run(command);
      } catch (const UsageError& error) {
        say(stderr, error.what());
      }
      worst = std::max(worst, exit);
    }
    return worst;
  }

 private:
  bool is_json_;
  Commands commands_;
  Interrupts& interrupts_;
  bool was_interrupted_ = false;
};

Exit run(const std::vector<std::string>& words, Interrupts& interrupts) {
  for (std::string_view rest : words) {
    while (!rest.empty()) {
      if (!text::take(rest)) {
        throw UsageError("an argument is not UTF-8; it must be text");
      }
    }
  }
  const auto arguments = parse_arguments(words);
  if (arguments.help || arguments.version) {
    say(stdout, arguments.help ? kHelp : "quire-client 0.1.0");
    return Exit::kDone;
  }
  Session session(arguments, interrupts);
  if (arguments.words.empty()) {
    return session.run_input();
  }
  const auto command = parse_command(arguments.words);
  return command ? session.run(command) : Exit::kDone;
}

}  // namespace
}  // namespace quire::cli

int main(int count, char** arguments) {
  using quire::cli::Exit;
  // A reader that has gone ends the output, not a purchase.
  signal(SIGPIPE, SIG_IGN);
  // Faults are told here, in words of the user's.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  auto exit = Exit::kUsage;
  try {
    static quire::cli::Interrupts interrupts;
    exit = quire::cli::run({arguments + 1, arguments + count}, interrupts);
  } catch (const std::exception& error) {
    quire::cli::say(stderr, std::string("quire-client: ") + error.what());
  }
  return static_cast<int>(exit);
}
