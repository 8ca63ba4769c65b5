#include "attempts.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace quire {
namespace {

using std::chrono::hours;
using Code = grpc::StatusCode;

constexpr milliseconds kPauseFirst{100};
constexpr milliseconds kPauseMax{2000};
/// The time to connect in if the call has no deadline.
constexpr milliseconds kUnboundedShare{5000};
/// Longer timeouts and pauses are as good as this one, and sums of it do not overflow.
constexpr milliseconds kForever = hours(24 * 365);

/// Whether a call with this code may have been done, and another attempt may tell.
bool is_open(const Ended& ended) {
  return ended.is_broken || ended.code == Code::UNAVAILABLE || ended.code == Code::UNKNOWN ||
         ended.code == Code::DEADLINE_EXCEEDED || ended.code == Code::CANCELLED;
}

/// When the server wants to be asked again; nothing means never.
std::optional<milliseconds> pushed_back(const std::string& text) {
  std::int64_t wait_ms = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, wait_ms);
  if (error == std::errc::result_out_of_range && rest == end && text.front() != '-') {
    return kForever;
  }
  if (error != std::errc() || rest != end || wait_ms < 0) {
    return std::nullopt;
  }
  return std::min(milliseconds(wait_ms), kForever);
}

}  // namespace

Attempts::Attempts(Kind kind, std::optional<milliseconds> timeout, std::uint32_t retries, Clock::time_point now)
    : kind_(kind), retries_(retries), share_(kUnboundedShare), pause_(kPauseFirst) {
  if (timeout) {
    const auto whole = std::min(*timeout, kForever);
    deadline_ = now + whole;
    // A purchase without an answer in its share, a quarter or more, is asked for again; anything else has all the time.
    share_ = kind == Kind::kPurchase ? whole / (std::min<std::int64_t>(retries, 3) + 1) : whole;
  }
}

Attempts::Bounds Attempts::attempt(Clock::time_point now) const {
  const auto end = deadline_ == Clock::time_point::max() ? deadline_ : std::min(now + share_, deadline_);
  return {.connected = std::min(now + share_ * 4 / 5, deadline_), .end = end};
}

Verdict Attempts::judge(const Ended& ended) const {
  if (!ended.was_sent) {
    return Verdict::kUnreachable;
  }
  if (!is_open(ended)) {
    return Verdict::kRefused;
  }
  return kind_ == Kind::kRead ? Verdict::kUnreachable : Verdict::kUnknown;
}

/// Whether another attempt of a call that is not in doubt may fare better.
bool Attempts::may_pass(const Ended& ended) const {
  if (!ended.was_sent || ended.code == Code::RESOURCE_EXHAUSTED) {
    return true;
  }
  return kind_ == Kind::kRead && (ended.is_broken || ended.code == Code::UNAVAILABLE || ended.code == Code::UNKNOWN);
}

std::optional<Clock::duration> Attempts::next(Ended ended, Clock::time_point now, double jitter) {
  ++attempts_;
  verdict_of_last_ = judge(ended);
  last_ = std::move(ended);
  if (verdict_of_last_ == Verdict::kUnknown) {
    in_doubt_ = last_;
  }
  const bool again = in_doubt_ ? kind_ == Kind::kPurchase && retries_ > 0 : attempts_ <= retries_ && may_pass(last_);
  if (!again) {
    return std::nullopt;
  }
  std::optional<Clock::duration> pause = std::chrono::duration_cast<Clock::duration>(pause_ * jitter);
  if (last_.pushback) {
    pause = pushed_back(*last_.pushback);
  }
  pause_ = std::min<Clock::duration>(pause_ * 2, kPauseMax);
  return pause && now < deadline_ && *pause < deadline_ - now ? pause : std::nullopt;
}

void Attempts::interrupt() {
  const Ended interrupted{.code = Code::CANCELLED, .message = "interrupted", .was_sent = true, .did = "did not answer"};
  if (in_doubt_) {
    in_doubt_ = interrupted;
    return;
  }
  verdict_of_last_ = Verdict::kUnreachable;
  last_ = interrupted;
  last_.did = "was not asked again, and nothing was done";
}

}  // namespace quire
