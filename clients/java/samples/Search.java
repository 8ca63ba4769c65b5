package samples;

import java.math.BigDecimal;
import quire.client.Book;
import quire.client.QuireClient;

/** Prints the books of a topic. */
public final class Search {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      for (Book book : client.search("distributed systems")) {
        BigDecimal price = BigDecimal.valueOf(book.priceCents(), 2);
        System.out.printf("%d %s: %d at %s%n", book.id(), book.title(), book.stock(), price);
      }
    }
  }
}
