/// The attempts of one call: when each ends, whether there is another, and what is known when it is over. It knows
/// neither a clock nor a connection.
#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace quire {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// What sending a call twice would do.
enum class Kind {
  /// It changes nothing.
  kRead,
  /// A change with a key, which happens once however often it is sent.
  kPurchase,
  /// A change that is sent again only if the server did nothing.
  kWrite,
};

/// How an attempt ended without an answer.
struct Ended {
  grpc::StatusCode code = grpc::StatusCode::UNAVAILABLE;
  std::string message;
  /// False if no connection was ready, so that the server knows nothing of it.
  bool was_sent = false;
  /// The status was made here, because the connection or the answer was broken.
  bool is_broken = false;
  /// `grpc-retry-pushback-ms` of the trailers.
  std::optional<std::string> pushback = {};
  /// What the server did, before the message.
  std::string did = "cannot be reached";
};

/// What is known of a call that has no answer.
enum class Verdict { kRefused, kUnreachable, kUnknown };

class Attempts {
 public:
  /// Without a timeout the call has no deadline.
  Attempts(Kind kind, std::optional<milliseconds> timeout, std::uint32_t retries, Clock::time_point now);

  struct Bounds {
    Clock::time_point connected;
    Clock::time_point end;
  };
  /// When the connection must be ready, and when the attempt ends.
  [[nodiscard]] Bounds attempt(Clock::time_point now) const;

  /// Judges an attempt. Gives the pause before the next one; nothing if there is none. `jitter` is from 0.8 to 1.2.
  std::optional<Clock::duration> next(Ended ended, Clock::time_point now, double jitter);

  /// Ends the call in a pause, for its caller: what is not in doubt was not done.
  void interrupt();

  [[nodiscard]] Verdict verdict() const { return in_doubt_ ? Verdict::kUnknown : verdict_of_last_; }
  /// The attempt that the verdict rests on.
  [[nodiscard]] const Ended& reason() const { return in_doubt_ ? *in_doubt_ : last_; }

 private:
  [[nodiscard]] Verdict judge(const Ended& ended) const;
  [[nodiscard]] bool may_pass(const Ended& ended) const;

  Kind kind_;
  std::uint32_t retries_;
  std::uint32_t attempts_ = 0;
  milliseconds share_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::duration pause_;
  Ended last_;
  Verdict verdict_of_last_ = Verdict::kUnreachable;
  /// The last attempt that may have bought or written. Nothing but the store's answer ends the doubt.
  std::optional<Ended> in_doubt_;
};

}  // namespace quire
