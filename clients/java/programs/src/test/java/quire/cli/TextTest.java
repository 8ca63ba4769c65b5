package quire.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TextTest {
  @Test
  void whatATerminalObeysIsEscapedAndTheRestIsNot() {
    assertEquals("plain – ünï 😈", Screen.line("plain – ünï 😈"));
    assertEquals("\\u{1b}[2J\\t\\u{202e}\\u{e0041}", Screen.line("\033[2J\t\u202e\udb40\udc41"));
  }

  @Test
  void wordsForAShellAreQuotedIfTheyMustBe() {
    assertEquals(
        "a=b 'it'\"'\"'s' '' \\u{1b}x", Screen.quoted(List.of("a=b", "it's", "", "\033x")));
  }

  @Test
  void columnsAreAsWideAsATerminalShowsThem() {
    assertEquals(10, Width.of("日本語の本"));
    assertEquals(4, Width.of("cafe\u0301"));
    assertEquals(2, Width.of("a\u200db"));
  }

  @Test
  void aLineIsSplitAtWhiteSpaceAndQuotesKeepIt() throws UsageException {
    assertEquals(
        List.of("search", "two  blanks", "end"), Lines.words(" search \"two  blanks\" end\r"));
    assertEquals(List.of("search", "it's", "a\"b c"), Lines.words("search it's \"a\"b c\""));
    assertEquals(List.of("search", ""), Lines.words("search ''"));
    assertThrows(UsageException.class, () -> Lines.words("search \"open"));
  }

  @Test
  void aLineHasAtMostSoManyBytes() throws Exception {
    byte[] text = ("x".repeat(65_537) + "\n" + "y".repeat(65_536)).getBytes(StandardCharsets.UTF_8);
    Lines lines = Lines.of(new ByteArrayInputStream(text));
    assertThrows(UsageException.class, lines::next);
    assertEquals(65_536, lines.next().length());
    assertEquals(null, lines.next());
  }

  @ParameterizedTest
  @CsvSource({
    ":80, 127.0.0.1:80",
    "books, books:10086",
    "[::1]:80, [::1]:80",
    "https://books:443/, books:443",
    "http://books, books:10086"
  })
  void anAddressIsAHostAndAPort(String text, String address) throws UsageException {
    assertEquals(List.of(address), Target.parse(text).addresses());
  }
}
