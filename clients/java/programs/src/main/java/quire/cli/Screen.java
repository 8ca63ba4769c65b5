package quire.cli;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import java.util.stream.Collectors;

/** Text as a terminal may show it. What others wrote is shown, never obeyed. */
final class Screen {
  private Screen() {}

  /** A column's head, and whether it holds numbers. */
  record Column(String head, boolean isNumber) {}

  /** One line, with escapes such as {@code \u005cu{1b}} for characters that act on a terminal. */
  static String line(String text) {
    return escaped(
        text,
        character ->
            switch (character) {
              case '\t' -> "\\t";
              case '\n' -> "\\n";
              case '\r' -> "\\r";
              default -> "\\u{" + Integer.toHexString(character) + "}";
            });
  }

  /** JSON in one line, with escapes that every reader of JSON knows. */
  static String json(JsonObject object) {
    return escaped(
        object.toString(),
        character ->
            Character.toString(character)
                .chars()
                .mapToObj(unit -> String.format("\\u%04x", unit))
                .collect(Collectors.joining()));
  }

  /** Whether nothing in it needs an escape. */
  static boolean isPlain(String text) {
    return text.codePoints().noneMatch(Screen::acts);
  }

  /** Rows below heads, in columns as wide as their widest cell; numbers stand to the right. */
  static String table(List<Column> columns, List<List<String>> rows) {
    List<List<String>> lines = new ArrayList<>();
    lines.add(columns.stream().map(Column::head).toList());
    rows.forEach(row -> lines.add(row.stream().map(Screen::line).toList()));
    int[] widths = new int[columns.size()];
    for (List<String> line : lines) {
      for (int i = 0; i < widths.length; i++) {
        widths[i] = Math.max(widths[i], Width.of(line.get(i)));
      }
    }
    StringBuilder out = new StringBuilder();
    for (List<String> line : lines) {
      StringBuilder row = new StringBuilder();
      for (int i = 0; i < widths.length; i++) {
        String blanks = " ".repeat(widths[i] - Width.of(line.get(i)));
        boolean isNumber = columns.get(i).isNumber();
        row.append(isNumber ? blanks : "").append(line.get(i)).append(isNumber ? "" : blanks);
        row.append("  ");
      }
      out.append(out.isEmpty() ? "" : "\n").append(withoutBlanksAtEnd(row));
    }
    return out.toString();
  }

  /** A command line for a shell. */
  static String quoted(List<String> words) {
    return words.stream().map(Screen::quoted).collect(Collectors.joining(" "));
  }

  private static String quoted(String word) {
    if (!isPlain(word)) {
      return line(word);
    }
    boolean isBare = word.matches("[A-Za-z0-9@%_\\-+=:,./]+");
    return isBare ? word : "'" + word.replace("'", "'\"'\"'") + "'";
  }

  private static CharSequence withoutBlanksAtEnd(StringBuilder row) {
    int end = row.length();
    while (end > 0 && row.charAt(end - 1) == ' ') {
      end--;
    }
    return row.subSequence(0, end);
  }

  private static String escaped(String text, IntFunction<String> escape) {
    if (isPlain(text)) {
      return text;
    }
    StringBuilder out = new StringBuilder();
    text.codePoints()
        .forEach(
            character -> {
              if (acts(character)) {
                out.append(escape.apply(character));
              } else {
                out.appendCodePoint(character);
              }
            });
    return out.toString();
  }

  /** Controls, changes of direction, ends of lines, and marks that no one sees. */
  private static boolean acts(int c) {
    return Character.isISOControl(c)
        || c == 0x61c
        || c == 0x200b
        || c == 0x200e
        || c == 0x200f
        || (c >= 0x2028 && c <= 0x202e)
        || (c >= 0x2060 && c <= 0x206f)
        || c == 0xfeff
        || (c >= 0xfff9 && c <= 0xfffb)
        || (c >= 0xe0000 && c <= 0xe007f);
  }
}
