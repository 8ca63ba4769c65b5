package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.ArrayList;
import java.util.List;

/** Where lines with commands come from. */
interface Lines {
  /** The next line; null at the end. */
  String next() throws IOException, UsageException;

  /** The lines of a pipe or a file. */
  static Lines of(InputStream input) {
    BufferedInputStream from = new BufferedInputStream(input);
    return () -> read(from);
  }

  /**
   * Splits a line at white space. A word that begins with a quote goes on to the same quote before
   * white space or the end; elsewhere a quote is an apostrophe.
   */
  static List<String> words(String line) throws UsageException {
    List<String> words = new ArrayList<>();
    int at = skipBlanks(line, 0);
    while (at < line.length()) {
      char first = line.charAt(at);
      int end;
      if (first == '"' || first == '\'') {
        end = line.indexOf(first, at + 1);
        while (end >= 0 && end + 1 < line.length() && !isBlank(line.charAt(end + 1))) {
          end = line.indexOf(first, end + 1);
        }
        if (end < 0) {
          throw new UsageException(
              "the quote " + first + " is not closed; close it, or leave it out");
        }
        words.add(line.substring(at + 1, end++));
      } else {
        end = at;
        while (end < line.length() && !isBlank(line.charAt(end))) {
          end++;
        }
        words.add(line.substring(at, end));
      }
      at = skipBlanks(line, end);
    }
    return words;
  }

  private static int skipBlanks(String line, int from) {
    int at = from;
    while (at < line.length() && isBlank(line.charAt(at))) {
      at++;
    }
    return at;
  }

  private static boolean isBlank(char character) {
    return Character.isSpaceChar(character)
        || (character >= '\t' && character <= '\r')
        || character == 0x85;
  }

  private static String read(BufferedInputStream from) throws IOException, UsageException {
    final int bytesMax = 65_536;
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    int next = from.read();
    if (next < 0) {
      return null;
    }
    boolean isTooLong = false;
    for (; next >= 0 && next != '\n'; next = from.read()) {
      isTooLong |= line.size() == bytesMax;
      if (!isTooLong) {
        line.write(next);
      }
    }
    if (isTooLong) {
      throw new UsageException(
          "a line is longer than " + bytesMax + " bytes; it must be one command");
    }
    try {
      return UTF_8.newDecoder().decode(ByteBuffer.wrap(line.toByteArray())).toString();
    } catch (CharacterCodingException e) {
      throw new UsageException("a line is not UTF-8; it must be one command");
    }
  }
}
