package quire.client;

import quire.client.wire.Bookstore;

/** A book of the catalogue; {@code stock} is how many copies can be bought. */
public record Book(int id, String title, String topic, int stock, long priceCents) {
  static Book of(Bookstore.Book book) {
    // A server that knows no cents sends the fraction alone.
    long cents =
        book.getPriceCents() != 0 ? book.getPriceCents() : Math.round(book.getPrice() * 100);
    return new Book(book.getId(), book.getTitle(), book.getTopic(), book.getStock(), cents);
  }
}
