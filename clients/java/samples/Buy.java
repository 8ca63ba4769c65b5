package samples;

import quire.client.BuyOutcome;
import quire.client.QuireClient;

/** Buys one copy of a book. */
public final class Buy {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      BuyOutcome outcome = client.buy(53573);
      if (outcome instanceof BuyOutcome.Bought bought) {
        int left = bought.stockLeft().orElseThrow();
        System.out.printf("bought: purchase %d, %d left%n", bought.number(), left);
      } else {
        System.out.println("not bought: " + outcome);
      }
    }
  }
}
