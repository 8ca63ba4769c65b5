package quire.client;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Where a server listens; the host of an IPv6 address is in brackets. */
record Address(String host, int port, boolean isTls) {
  private static final Pattern FORM =
      Pattern.compile(
          "(?:(https?)://)?([A-Za-z0-9._-]*|\\[[0-9A-Fa-f:.]+])(?::([0-9]{1,5}))?(?<!/)/?");

  static Address parse(String text) {
    Matcher found = FORM.matcher(text);
    int port = 0;
    if (found.matches() && !text.isEmpty()) {
      port = found.group(3) == null ? 10086 : Integer.parseInt(found.group(3));
    }
    if (port < 1 || port > 65535) {
      throw new IllegalArgumentException(
          "'" + text + "' is no address; it must be HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
    }
    String host = found.group(2).isEmpty() ? "127.0.0.1" : found.group(2);
    return new Address(host, port, "https".equals(found.group(1)));
  }

  /** As it is written. */
  @Override
  public String toString() {
    return host + ":" + port;
  }
}
