package quire.client;

/** Where a server listens; the host of an IPv6 address is without brackets. */
record Address(String host, int port) {
  static Address parse(String text) {
    int colon = text.lastIndexOf(':');
    String host = text.substring(0, Math.max(colon, 0));
    boolean isBracketed = host.startsWith("[") && host.endsWith("]");
    String bare = isBracketed ? host.substring(1, host.length() - 1) : host;
    int port = 0;
    if (!bare.isEmpty() && bare.contains(":") == isBracketed && bare.matches("[0-9A-Za-z._:%-]+")) {
      String digits = text.substring(colon + 1);
      port = digits.matches("[0-9]{1,5}") ? Integer.parseInt(digits) : 0;
    }
    if (port < 1 || port > 65535) {
      throw new IllegalArgumentException(
          "'" + text + "' is no address; it must be HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
    }
    return new Address(bare, port);
  }

  /** As it is written. */
  @Override
  public String toString() {
    return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
  }
}
