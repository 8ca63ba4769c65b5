package quire.client;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Supplier;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Items that come page after page. Each iteration asks the server anew, for a page when the one
 * before is used up; it throws {@link QuireException} where a page does not come.
 */
public final class Paged<T> implements Iterable<T> {
  private final Supplier<Page<T>> first;

  Paged(Supplier<Page<T>> first) {
    this.first = first;
  }

  /** Asks the server for the first page. */
  public Page<T> firstPage() {
    return first.get();
  }

  /** The items, asked for as the stream is read. */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }

  @Override
  public Iterator<T> iterator() {
    return new Iterator<>() {
      private Page<T> page;
      private Iterator<T> items;

      @Override
      public boolean hasNext() {
        if (page == null) {
          turnTo(first.get());
        }
        while (!items.hasNext()) {
          var next = page.next();
          if (next.isEmpty()) {
            return false;
          }
          turnTo(next.get());
        }
        return true;
      }

      @Override
      public T next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        return items.next();
      }

      private void turnTo(Page<T> to) {
        page = to;
        items = to.items().iterator();
      }
    };
  }
}
