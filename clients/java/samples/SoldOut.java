package samples;

import quire.client.BuyOutcome;
import quire.client.Purchase;
import quire.client.QuireClient;

/** Buys all copies of a book that are left, and handles every outcome of a purchase. */
public final class SoldOut {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      BuyOutcome first = buy(client, 1);
      buy(client, 1000);
      buy(client, first.stockLeft().orElseThrow());
      buy(client, 1);
    }
  }

  private static BuyOutcome buy(QuireClient client, int quantity) {
    BuyOutcome outcome = client.buy(Purchase.of(12498).quantity(quantity));
    if (outcome instanceof BuyOutcome.Bought bought) {
      System.out.printf("bought: %d left%n", bought.stockLeft().orElseThrow());
    } else if (outcome instanceof BuyOutcome.TooFew tooFew) {
      System.out.printf("too few: %d left%n", tooFew.stockLeft().orElseThrow());
    } else if (outcome instanceof BuyOutcome.SoldOut) {
      System.out.println("sold out");
    } else if (outcome instanceof BuyOutcome.NoSuchBook) {
      System.out.println("there is no such book");
    } else if (outcome instanceof BuyOutcome.NotBought notBought) {
      System.out.println("not bought: " + notBought.message());
    } else if (outcome instanceof BuyOutcome.Unknown unknown) {
      // It may have been bought. The same purchase, sent again with this key, settles it.
      System.out.println("in doubt, with the key " + unknown.key());
    }
    return outcome;
  }
}
