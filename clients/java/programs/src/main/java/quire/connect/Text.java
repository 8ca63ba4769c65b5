package quire.connect;

/** Text for terminals and shells. */
public final class Text {
  private Text() {}

  /** The text of others, without what acts on a terminal. */
  public static String plain(String text) {
    return text.replaceAll("[\\p{Cc}\\p{Cf}]", "\ufffd");
  }

  /** A word as a shell takes it. */
  public static String quoted(String word) {
    return word.matches("[A-Za-z0-9@%_+=:,./-]+") ? word : "'" + word.replace("'", "'\\''") + "'";
  }
}
