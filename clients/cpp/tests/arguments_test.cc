#include "arguments.h"

#include <gtest/gtest.h>

#include "command.h"

namespace quire::cli {
namespace {

using namespace std::chrono_literals;

std::string reason(const std::vector<std::string>& words) {
  try {
    options(parse_arguments(words));
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(Arguments, FlagsStandAnywhereAndTakeTheirValueInTwoWays) {
  const auto arguments = parse_arguments({"books", "buy", "--key=a=b", "-7", "--timeout", "1.5", "--json", "--", "-x"});
  EXPECT_EQ(arguments.address, "books");
  EXPECT_EQ(arguments.words, (std::vector<std::string>{"buy", "-7", "-x"}));
  EXPECT_EQ(arguments.key, "a=b");
  EXPECT_EQ(arguments.timeout, 1500ms);
  EXPECT_TRUE(arguments.json);
}

TEST(Arguments, TheFirstWordIsAnAddressIfItLooksLikeOneOrACommandFollows) {
  EXPECT_EQ(parse_arguments({"ping", "search"}).address, "127.0.0.1:10086");
  EXPECT_EQ(parse_arguments({"localhost"}).address, "localhost");
  EXPECT_EQ(parse_arguments({"sell", "ping"}).address, "sell");
  EXPECT_EQ(parse_arguments({"sell", "1"}).address, "127.0.0.1:10086");
}

TEST(Arguments, WhatIsWrongIsNamed) {
  EXPECT_EQ(reason({"--sell=1"}), "there is no flag '--sell'; --help lists them");
  EXPECT_EQ(reason({"--json=1"}), "--json takes no value");
  EXPECT_EQ(reason({"--ca"}), "--ca wants a value");
  EXPECT_EQ(reason({"--timeout", "5d"}), "--timeout is '5d'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min");
  EXPECT_EQ(reason({"--retries", "x"}), "--retries is 'x'; it must be a whole number from 0 to 1000000");
  EXPECT_EQ(reason({"--key", ""}), "the idempotency key has 0 bytes; it must have 1 to 64");
}

TEST(Command, WhatCannotBeIsNamed) {
  const auto why = [](const std::vector<std::string>& words) -> std::string {
    try {
      parse_command(words);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(why({"sell"}), "there is no command 'sell'; help lists them");
  EXPECT_EQ(why({"?", "me"}), "usage: help");
  EXPECT_EQ(why({"lookup", "+-1"}), "id is '+-1'; it must be a whole number from 1 to 2147483647");
  EXPECT_EQ(why({"buy", "1", "0"}), "quantity is '0'; it must be a whole number from 1");
  EXPECT_EQ(why({"search", "a", "b"}), "");
}

}  // namespace
}  // namespace quire::cli
