#include "format.h"

#include <gtest/gtest.h>

#include "arguments.h"
#include "text.h"

namespace quire::cli {
namespace {

TEST(Format, ATableHasNumbersToTheRightAndNoBlanksAtTheEnd) {
  EXPECT_EQ(table({{"id", true}, {"title"}}, {{"1", "日本"}, {"23", "a\x1b"}}), "id  title\n 1  日本\n23  a\\u{1b}");
  EXPECT_EQ(table({{"a"}, {"n", true}}, {{"e\u0301", "1"}, {"日", "22"}}), "a    n\ne\u0301    1\n日  22");
}

TEST(Format, CharactersThatActOnATerminalAreEscaped) {
  EXPECT_EQ(text::escaped("a\t\r\n\x7f\u202e\U000e0041 é"), "a\\t\\r\\n\\u{7f}\\u{202e}\\u{e0041} é");
  EXPECT_EQ(text::escaped("\xff\xc0\x80"), "\\xff\\xc0\\x80");
  EXPECT_EQ(json_line("\x1b\u200b\U000e0001\b\"é/"), "\"\\u001b\\u200b\\udb40\\udc01\\b\\\"é/\"");
}

TEST(Format, WordsAreQuotedForAShell) {
  EXPECT_EQ(quoted({"a@%_-+=:,./9", "", "it's", "a\nb", "é"}), R"(a@%_-+=:,./9 '' 'it'"'"'s' a\nb 'é')");
}

TEST(Format, ALineIsSplitAtWhiteSpace) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split(" search  a\u3000b\r"), (Words{"search", "a", "b"}));
  EXPECT_EQ(split("'it's mine' it's \"\""), (Words{"it's mine", "it's", ""}));
  EXPECT_EQ(split("\"a\"b\" c"), (Words{"a\"b", "c"}));
  EXPECT_THROW(split("\"open"), UsageError);
}

TEST(Format, APriceHasTwoDecimals) {
  EXPECT_EQ(price(5), "0.05");
  EXPECT_EQ(price(4200), "42.00");
  EXPECT_EQ(price(0), "0.00");
}

}  // namespace
}  // namespace quire::cli
