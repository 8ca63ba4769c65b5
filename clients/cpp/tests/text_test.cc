#include "text.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Text, HasNothingThatActsOnATerminal) {
  EXPECT_EQ(plain("Über — 日本語 😈 \U0010ffff"), "Über — 日本語 😈 \U0010ffff");
  EXPECT_EQ(plain("a\x1b[2J\u0080\u202e\ufeff\ufff9\U000e0041b"), "a�[2J�����b");
  // A stray byte, one that is cut, one too long, a surrogate, and what is behind the last character.
  EXPECT_EQ(plain("\x9b[2J \xe6\x97 \xc0\x9b \xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x9f"), "�[2J �� �� � � ��");
}

TEST(Text, IsOneWordForAShell) {
  EXPECT_EQ(quoted("--key=a/b:1"), "--key=a/b:1");
  EXPECT_EQ(quoted("it's $1"), R"('it'\''s $1')");
  EXPECT_EQ(quoted(""), "''");
}

}  // namespace
}  // namespace quire
