#include "prompt.h"

#include <histedit.h>
#include <sys/stat.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>

#include "arguments.h"
#include "text.h"

namespace quire::cli {
namespace {

constexpr std::size_t kLineBytesMax = 65'536;
constexpr int kHistoryLines = 1'000;
constexpr std::size_t kHistoryLineBytes = 1'000;

class Pipe : public Lines {
 public:
  std::optional<std::string> next() override {
    std::string line;
    int each = 0;
    while ((each = std::getchar()) != EOF && each != '\n') {
      if (line.size() <= kLineBytesMax) {
        line += static_cast<char>(each);
      }
    }
    if (line.empty() && each == EOF) {
      return std::nullopt;
    }
    if (line.size() > kLineBytesMax) {
      throw UsageError("a line is longer than 65536 bytes; it must be one command");
    }
    for (std::string_view rest = line; !rest.empty();) {
      if (!text::take(rest)) {
        throw UsageError("a line is not UTF-8; it must be one command");
      }
    }
    return line;
  }
};

/// The file of earlier lines in the user's folder for state; empty if there is no such folder.
std::filesystem::path history_file() {
  std::filesystem::path folder;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    folder = state;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  folder /= "quire";
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  return folder / "cpp_client_history";
}

class Terminal : public Lines {
 public:
  explicit Terminal(Complete complete) : complete_(std::move(complete)), file_(history_file()) {
    // The editor counts characters, which are UTF-8 here in every locale.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, kHistoryLines);
    history(history_.get(), &event, H_SETUNIQUE, 1);
    load();
    auto* editor = editor_.get();
    el_set(editor, EL_CLIENTDATA, this);
    el_set(
        editor, EL_PROMPT, +[](EditLine* /*editor*/) -> const char* { return "quire client> "; });
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, &::history, history_.get());
    // Ctrl-C reaches the editor as a key while a line is typed, and as a signal while a command runs.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_ADDFN, "quire-complete", "completes a word", &Terminal::on_tab);
    el_set(editor, EL_ADDFN, "quire-drop", "drops the line", &Terminal::on_interrupt);
    el_set(editor, EL_BIND, "^I", "quire-complete", nullptr);
    el_set(editor, EL_BIND, "^C", "quire-drop", nullptr);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }

  std::optional<std::string> next() override {
    is_dropped_ = false;
    // The editor would do so once it has shown the prompt, and lose what is typed before.
    el_set(editor_.get(), EL_PREP_TERM, 1);
    int count = 0;
    const char* read = el_gets(editor_.get(), &count);
    if (read == nullptr || count <= 0) {
      std::puts("");
      return std::nullopt;
    }
    std::string line(read, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) {
      line.pop_back();
    }
    if (is_dropped_) {
      return std::string();
    }
    keep(line);
    return line;
  }

 private:
  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }

  /// A half-typed line is dropped; on an empty one the user wants to leave.
  static unsigned char on_interrupt(EditLine* editor, int /*key*/) {
    const auto* line = el_line(editor);
    if (line->lastchar == line->buffer) {
      return CC_EOF;
    }
    of(editor).is_dropped_ = true;
    std::puts("");
    return CC_NEWLINE;
  }

  static unsigned char on_tab(EditLine* editor, int /*key*/) {
    const auto* info = el_line(editor);
    const std::string line(info->buffer, info->cursor);
    const auto [start, found] = of(editor).complete_(line);
    if (found.empty()) {
      return CC_REFRESH_BEEP;
    }
    const auto typed = line.substr(start);
    auto common = found.front();
    for (const auto& each : found) {
      common.resize(static_cast<std::size_t>(std::ranges::mismatch(common, each).in1 - common.begin()));
    }
    // The candidates may part within a character.
    while (!common.empty() && !is_whole(common)) {
      common.pop_back();
    }
    if (common.size() > typed.size()) {
      const auto characters = std::ranges::count_if(typed, [](char each) { return (each & '\xc0') != '\x80'; });
      el_deletestr(editor, static_cast<int>(characters));
      el_insertstr(editor, common.c_str());
      return CC_REFRESH;
    }
    if (found.size() > 1) {
      std::puts("");
      for (const auto& each : found) {
        std::puts(each.c_str());
      }
      return CC_REDISPLAY;
    }
    return CC_NORM;
  }

  static bool is_whole(std::string_view text) {
    while (!text.empty()) {
      if (!text::take(text)) {
        return false;
      }
    }
    return true;
  }

  void load() {
    std::deque<std::string> lines;
    std::ifstream input(file_);
    for (std::string line; std::getline(input, line);) {
      lines.push_back(line.substr(0, kHistoryLineBytes));
      if (lines.size() > kHistoryLines) {
        lines.pop_front();
      }
    }
    HistEvent event;
    for (const auto& line : lines) {
      history(history_.get(), &event, H_ENTER, line.c_str());
    }
    // Only the owner may read what was typed.
    auto output = open(std::ios::trunc);
    for (const auto& line : lines) {
      output << line << '\n';
    }
  }

  void keep(const std::string& line) {
    if (line.find_first_not_of(' ') == std::string::npos || line.size() > kHistoryLineBytes) {
      return;
    }
    HistEvent event;
    history(history_.get(), &event, H_ENTER, line.c_str());
    open(std::ios::app) << line << '\n';
  }

  [[nodiscard]] std::ofstream open(std::ios::openmode mode) const {
    const auto before = umask(S_IRWXG | S_IRWXO);
    std::ofstream output(file_, mode);
    umask(before);
    std::error_code error;
    std::filesystem::permissions(file_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
                                 error);
    return output;
  }

  struct Free {
    void operator()(EditLine* editor) const { el_end(editor); }
    void operator()(History* history) const { history_end(history); }
  };

  Complete complete_;
  std::filesystem::path file_;
  std::unique_ptr<History, Free> history_{history_init()};
  std::unique_ptr<EditLine, Free> editor_{el_init("quire-client", stdin, stdout, stderr)};
  bool is_dropped_ = false;
};

}  // namespace

std::unique_ptr<Lines> open_lines(bool is_terminal, Complete complete) {
  if (is_terminal) {
    return std::make_unique<Terminal>(std::move(complete));
  }
  return std::make_unique<Pipe>();
}

}  // namespace quire::cli
