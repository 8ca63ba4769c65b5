package samples;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import quire.client.QuireClient;

/** Keeps the receipt of a purchase, with which anyone can verify it without the server. */
public final class Receipt {
  public static void main(String[] arguments) throws IOException {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      var purchase = client.buy(53573);
      var receipt = client.receipt(purchase.number(), purchase.key()).receipt().orElseThrow();
      Files.writeString(Path.of("my.tlog-proof"), receipt.text());
      // It proves little if it comes from the same server; the shop publishes it elsewhere as well.
      Files.writeString(Path.of("log-key"), receipt.logKey() + "\n");
      System.out.printf("kept: purchase %d%n", purchase.number());
      System.out.println("verify it: quire receipt my.tlog-proof --key log-key");
    }
  }
}
