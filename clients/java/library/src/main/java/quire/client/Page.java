package quire.client;

import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;

/** Some of the items that a call gives, in their order. */
public final class Page<T> {
  private final List<T> items;
  private final String message;
  private final Supplier<Page<T>> next;

  /** {@code next} asks for the page after this one; null on the last page. */
  Page(List<T> items, String message, Supplier<Page<T>> next) {
    this.items = items;
    this.message = message;
    this.next = next;
  }

  /**
   * Reads a page of the wire; {@code next} asks for the page of a token, which is empty at the end.
   */
  static <W, T> Page<T> of(
      List<W> items,
      Function<W, T> read,
      String message,
      String token,
      Function<String, Page<T>> next) {
    return new Page<>(
        items.stream().map(read).toList(),
        message,
        token.isEmpty() ? null : () -> next.apply(token));
  }

  /** The items; a page before the last may have none. */
  public List<T> items() {
    return items;
  }

  /** The server's words on the page; empty for calls that have none. */
  public String message() {
    return message;
  }

  /** Asks the server for the page after this one; empty on the last page. */
  public Optional<Page<T>> next() {
    return next == null ? Optional.empty() : Optional.of(next.get());
  }
}
