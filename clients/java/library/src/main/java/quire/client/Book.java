package quire.client;

import quire.client.wire.Bookstore;

/**
 * A book of the catalogue.
 *
 * @param stock copies that can be bought
 * @param held copies that reservations hold; they are not in {@code stock}
 */
public record Book(int id, String title, String topic, int stock, int held, long priceCents) {
  static Book of(Bookstore.Book book) {
    // A server that knows no cents sends the fraction alone.
    long cents =
        book.getPriceCents() != 0 ? book.getPriceCents() : Math.round(book.getPrice() * 100);
    return new Book(
        book.getId(), book.getTitle(), book.getTopic(), book.getStock(), book.getHeld(), cents);
  }
}
