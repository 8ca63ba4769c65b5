package quire.cli;

import java.util.List;
import java.util.NavigableSet;
import java.util.TreeSet;
import quire.client.Book;

/** Ids and topics that answers have shown, for completion; a bounded number of them. */
final class Seen {
  private static final int SEEN_MAX = 10_000;

  private final NavigableSet<String> ids = new TreeSet<>();
  private final NavigableSet<String> topics = new TreeSet<>();

  void books(List<Book> books) {
    for (Book book : books) {
      topic(book.topic());
      if (ids.size() < SEEN_MAX) {
        ids.add(Integer.toString(book.id()));
      }
    }
  }

  /** Remembers a topic, unless a terminal would obey it. */
  void topic(String topic) {
    if (topics.size() < SEEN_MAX && Screen.isPlain(topic)) {
      topics.add(topic);
    }
  }

  /** What can be the argument of a command and begins like what is typed. */
  List<String> arguments(String command, String typed) {
    NavigableSet<String> known =
        switch (command) {
          case "search", "topics" -> topics;
          case "lookup", "buy" -> ids;
          default -> new TreeSet<>();
        };
    return known.tailSet(typed).stream().takeWhile(it -> it.startsWith(typed)).toList();
  }
}
