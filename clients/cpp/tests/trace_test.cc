#include "trace.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

const std::string kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::string members(int count) {
  std::string members = "a=1";
  for (int i = 1; i < count; ++i) {
    members += ",a=1";
  }
  return members;
}

std::string two_members(std::size_t bytes) {
  const auto first = "a=" + std::string(254, '1') + ",b=";
  return first + std::string(bytes - first.size(), '2');
}

TEST(Trace, IsValidWithinTheLimits) {
  for (const auto& state : {std::string("rojo=00f067aa0ba902b7"), std::string("1t@s=a b!~ , b=c"), members(32),
                            two_members(512), "a=" + std::string(256, '1'), std::string(256, 'a') + "=1"}) {
    EXPECT_TRUE(is_valid_trace(kParent, state)) << state;
  }
  EXPECT_TRUE(is_valid_trace("cc" + kParent.substr(2) + "-more", "a=1"));
}

TEST(Trace, IsInvalidWithAWrongState) {
  for (const auto& state :
       {std::string(), std::string(" "), std::string("a"), std::string("a="), std::string("A=1"), std::string("=1"),
        std::string("a=b=c"), std::string("a=1,b"), std::string("a=1,\tb=2"), std::string("a=1,"), std::string("a=ü"),
        members(33), two_members(513), "a=" + std::string(257, '1'), std::string(257, 'a') + "=1"}) {
    EXPECT_FALSE(is_valid_trace(kParent, state)) << state;
  }
}

TEST(Trace, IsInvalidWithAWrongParent) {
  const auto zeros = [](std::size_t at, std::size_t count) {
    return std::string(kParent).replace(at, count, count, '0');
  };
  for (const auto& parent :
       {std::string(), "ff" + kParent.substr(2), kParent + "-more", "cc" + kParent.substr(2) + "0", kParent.substr(1),
        zeros(3, 32), zeros(36, 16), std::string("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01")}) {
    EXPECT_FALSE(is_valid_trace(parent, "a=1")) << parent;
  }
}

}  // namespace
}  // namespace quire
