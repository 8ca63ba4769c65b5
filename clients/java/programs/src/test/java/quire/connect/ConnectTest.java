package quire.connect;

import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import picocli.CommandLine;

class ConnectTest {
  private static void connect(String... words) {
    Connect connect = new Connect();
    new CommandLine(CommandLine.Model.CommandSpec.create().addMixin("it", spec(connect)))
        .parseArgs(java.util.Arrays.copyOfRange(words, 1, words.length));
    connect.client(words[0]).close();
  }

  private static CommandLine.Model.CommandSpec spec(Connect connect) {
    return CommandLine.Model.CommandSpec.forAnnotatedObject(connect);
  }

  @Test
  void addressesAreWrittenInSeveralWays() {
    for (String text : new String[] {":80", "a", "a:080", "http://[::1]/", "[::1]:80", "a:1,b"}) {
      connect(text);
    }
  }

  @Test
  void whatIsNoAddressIsRefused() {
    for (String text :
        new String[] {
          "", "::1", "a:b", "a:0", "a:65536", "ftp://a", "a/b", "a:1,", "http://a,https://b"
        }) {
      assertThrows(IllegalArgumentException.class, () -> connect(text), text);
    }
  }

  @Test
  void halfACertificateIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> connect("a", "--certificate", "c.pem"));
  }
}
