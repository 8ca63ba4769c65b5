package samples;

import java.time.Duration;
import java.util.Optional;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.Reservation;

/** Reserves a copy and buys it; then reserves another, and comes too late. */
public final class Reserve {
  public static void main(String[] arguments) throws InterruptedException {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      Reservation held = client.reserve(Purchase.of(53477), Optional.of(Duration.ofMinutes(1)));
      System.out.printf("held: %d left%n", held.stockLeft().orElseThrow());
      Reservation bought = client.confirm(held.key());
      System.out.printf("bought: purchase %d%n", bought.number());

      Reservation brief = client.reserve(Purchase.of(53477), Optional.of(Duration.ofSeconds(1)));
      Thread.sleep(1100);
      Reservation late = client.confirm(brief.key());
      if (late.outcome() == Reservation.Outcome.EXPIRED) {
        System.out.printf("too late: %d left%n", late.stockLeft().orElseThrow());
      }
    }
  }
}
