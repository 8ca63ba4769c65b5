package samples;

import quire.client.BuyOutcome;
import quire.client.Purchase;
import quire.client.QuireClient;

/** Sends a purchase twice; its key makes sure that it happens once. */
public final class BuyAgain {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    // The key is made here. Kept on disk, it would be safe to send again after a crash as well.
    Purchase purchase = Purchase.of(12365);
    try (QuireClient client = QuireClient.connect(address)) {
      for (int time = 0; time < 2; time++) {
        BuyOutcome outcome = client.buy(purchase);
        System.out.printf(
            "purchase %d, %s%n", outcome.number(), outcome.replayed() ? "replayed" : "new");
      }
    }
  }
}
