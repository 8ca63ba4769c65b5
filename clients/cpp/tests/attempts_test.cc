#include "attempts.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

using namespace std::chrono_literals;
using Code = grpc::StatusCode;

const Clock::time_point kStart{};

Ended sent(Code code, std::optional<std::string> pushback = {}) {
  return {.code = code, .message = "", .was_sent = true, .pushback = std::move(pushback)};
}
Ended unsent() { return {}; }

Attempts purchase(std::uint32_t retries = 3) { return {Kind::kPurchase, 30s, retries, kStart}; }

TEST(Attempts, APurchaseInDoubtIsSentUntilItsDeadline) {
  auto tries = purchase();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(tries.next(sent(Code::UNAVAILABLE), kStart + 1s * i, 1)) << i;
  }
  EXPECT_FALSE(tries.next(unsent(), kStart + 29s, 1)) << "a pause of 2 s does not fit";
  EXPECT_EQ(tries.verdict(), Verdict::kUnknown);
  EXPECT_EQ(tries.reason().code, Code::UNAVAILABLE);
}

TEST(Attempts, NothingButTheStoresAnswerEndsADoubt) {
  for (const auto code : {Code::INVALID_ARGUMENT, Code::UNAUTHENTICATED, Code::INTERNAL, Code::RESOURCE_EXHAUSTED}) {
    auto tries = purchase();
    tries.next(sent(Code::DEADLINE_EXCEEDED), kStart, 1);
    EXPECT_TRUE(tries.next(sent(code), kStart + 1s, 1));
    EXPECT_EQ(tries.verdict(), Verdict::kUnknown);
    EXPECT_EQ(tries.reason().code, Code::DEADLINE_EXCEEDED);
  }
}

TEST(Attempts, WithoutRetriesADoubtIsToldAtOnce) {
  auto tries = purchase(0);
  EXPECT_FALSE(tries.next(sent(Code::UNKNOWN), kStart, 1));
  EXPECT_EQ(tries.verdict(), Verdict::kUnknown);
}

TEST(Attempts, WhatWasNotSentIsSentAgainAsOftenAsIsSaid) {
  for (const auto kind : {Kind::kRead, Kind::kPurchase, Kind::kWrite}) {
    Attempts tries(kind, 30s, 2, kStart);
    EXPECT_TRUE(tries.next(unsent(), kStart, 1));
    EXPECT_TRUE(tries.next(unsent(), kStart, 1));
    EXPECT_FALSE(tries.next(unsent(), kStart, 1));
    EXPECT_EQ(tries.verdict(), Verdict::kUnreachable);
  }
}

TEST(Attempts, WhatIsInterruptedInAPauseIsInDoubtOrWasNotDone) {
  for (const auto& [code, verdict] :
       {std::pair(Code::RESOURCE_EXHAUSTED, Verdict::kUnreachable), std::pair(Code::UNAVAILABLE, Verdict::kUnknown)}) {
    auto tries = purchase();
    EXPECT_TRUE(tries.next(sent(code), kStart, 1));
    tries.interrupt();
    EXPECT_EQ(tries.verdict(), verdict);
    EXPECT_EQ(tries.reason().code, Code::CANCELLED);
  }
}

TEST(Attempts, AWriteThatWasSentIsNotSentAgain) {
  Attempts tries(Kind::kWrite, 5s, 3, kStart);
  EXPECT_TRUE(tries.next(sent(Code::RESOURCE_EXHAUSTED), kStart, 1));
  EXPECT_FALSE(tries.next(sent(Code::UNAVAILABLE), kStart, 1));
  EXPECT_EQ(tries.verdict(), Verdict::kUnknown);
}

TEST(Attempts, ABrokenAnswerIsNoRefusal) {
  auto broken = sent(Code::INTERNAL);
  broken.is_broken = true;
  for (const auto& [kind, verdict] :
       {std::pair(Kind::kRead, Verdict::kUnreachable), std::pair(Kind::kPurchase, Verdict::kUnknown),
        std::pair(Kind::kWrite, Verdict::kUnknown)}) {
    Attempts tries(kind, 5s, 3, kStart);
    EXPECT_EQ(tries.next(broken, kStart, 1).has_value(), kind != Kind::kWrite);
    EXPECT_EQ(tries.verdict(), verdict);
  }
}

TEST(Attempts, AReadIsRefusedOrSentAgain) {
  Attempts refused(Kind::kRead, 5s, 3, kStart);
  EXPECT_FALSE(refused.next(sent(Code::NOT_FOUND), kStart, 1));
  EXPECT_EQ(refused.verdict(), Verdict::kRefused);
  Attempts passing(Kind::kRead, 5s, 3, kStart);
  EXPECT_TRUE(passing.next(sent(Code::UNKNOWN), kStart, 1));
  EXPECT_FALSE(passing.next(sent(Code::DEADLINE_EXCEEDED), kStart, 1));
  EXPECT_EQ(passing.verdict(), Verdict::kUnreachable);
}

TEST(Attempts, PausesDoubleTo2SecondsAndVary) {
  auto tries = purchase();
  for (const auto pause : {100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms}) {
    EXPECT_EQ(tries.next(sent(Code::UNAVAILABLE), kStart, 1), pause);
  }
  EXPECT_EQ(tries.next(sent(Code::UNAVAILABLE), kStart, 1.2), 2400ms);
}

TEST(Attempts, TheServerSaysWhenToComeBack) {
  EXPECT_EQ(purchase().next(sent(Code::UNAVAILABLE, "1234"), kStart, 1.2), 1234ms);
  for (const auto* never : {"-1", "soon", "", "1s", "99999999999999999999"}) {
    EXPECT_EQ(purchase().next(sent(Code::RESOURCE_EXHAUSTED, never), kStart, 1), std::nullopt) << never;
  }
}

TEST(Attempts, AnAttemptHasItsShareAndConnectsInFourFifthsOfIt) {
  const auto first = purchase().attempt(kStart);
  EXPECT_EQ(first.end - kStart, 7500ms);
  EXPECT_EQ(first.connected - kStart, 6s);
  const auto last = purchase().attempt(kStart + 28s);
  EXPECT_EQ(last.end - kStart, 30s);
  const auto read = Attempts(Kind::kRead, 5s, 3, kStart).attempt(kStart);
  EXPECT_EQ(read.end - kStart, 5s);
  EXPECT_EQ(Attempts(Kind::kRead, std::nullopt, 3, kStart).attempt(kStart).end, Clock::time_point::max());
}

}  // namespace
}  // namespace quire
