/// Where commands come from: a prompt on a terminal, or lines from a pipe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::cli {

/// What can follow in place of the end of a line: where that end starts, and the candidates.
using Complete = std::function<std::pair<std::size_t, std::vector<std::string>>(std::string_view line)>;

class Lines {
 public:
  virtual ~Lines() = default;
  /// The next line without its end; nothing at the end of the input. Throws UsageError for a line that cannot be one.
  virtual std::optional<std::string> next() = 0;
};

/// Reads standard input. `is_terminal` says whether there is someone to prompt.
std::unique_ptr<Lines> open_lines(bool is_terminal, Complete complete);

}  // namespace quire::cli
