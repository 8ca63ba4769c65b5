package quire.cli;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Where the servers are, as people write it.
 *
 * @param text as it was written
 * @param addresses each {@code HOST:PORT}
 * @param isTls whether the servers speak TLS
 */
public record Target(String text, List<String> addresses, boolean isTls) {
  private static final int PORT = 10086;
  private static final Pattern HOST = Pattern.compile("[A-Za-z0-9._-]*|\\[[0-9A-Fa-f:.]+\\]");

  /** Reads one address or several, with commas between. */
  public static Target parse(String text) throws UsageException {
    List<String> addresses = new ArrayList<>();
    boolean isTls = false;
    for (String part : text.split(",", -1)) {
      boolean isPartTls = part.startsWith("https://");
      if (!addresses.isEmpty() && isPartTls != isTls) {
        throw new UsageException(
            "'" + text + "' has addresses with TLS and without; give all alike");
      }
      isTls = isPartTls;
      addresses.add(address(part));
    }
    return new Target(text, addresses, isTls);
  }

  private static String address(String text) throws UsageException {
    int scheme = text.indexOf("://");
    String rest = scheme < 0 ? text : text.substring(scheme + 3);
    if (scheme >= 0 && !text.startsWith("http://") && !text.startsWith("https://")) {
      throw wrong(text, "http://" + rest + " or https://" + rest);
    }
    if (scheme >= 0 && rest.endsWith("/")) {
      rest = rest.substring(0, rest.length() - 1);
    }
    int path = rest.indexOf('/');
    if (path >= 0) {
      String before = scheme < 0 ? "" : text.substring(0, scheme + 3);
      throw wrong(text, "without a path: " + before + rest.substring(0, path));
    }
    if (HOST.matcher(rest).matches() && !rest.isEmpty()) {
      return rest + ":" + PORT;
    }
    int colon = rest.lastIndexOf(':');
    String host = rest.substring(0, Math.max(colon, 0));
    if (colon < 0 || !HOST.matcher(host).matches()) {
      throw wrong(text, "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
    }
    String digits = rest.substring(colon + 1).replaceFirst("^0+(?=[0-9])", "");
    int port = digits.matches("[0-9]{1,5}") ? Integer.parseInt(digits) : Integer.MAX_VALUE;
    if (port == 0 || port > 65535) {
      String range = port == 0 ? "from 1 to 65535" : "up to 65535";
      throw wrong(text, "HOST:PORT with a port " + range + ", as " + host + ":" + PORT);
    }
    return (host.isEmpty() ? "127.0.0.1" : host) + ":" + port;
  }

  private static UsageException wrong(String text, String want) {
    return new UsageException("'" + text + "' is no address; it must be " + want);
  }
}
