package quire.cli;

import java.util.List;
import java.util.OptionalInt;
import java.util.stream.Stream;

/** What a shopper can type. */
sealed interface Command {
  record Ping() implements Command {}

  /** Topics near a text; all if it is empty. */
  record Topics(String near) implements Command {}

  record Search(String topic) implements Command {}

  record Lookup(int id) implements Command {}

  record Buy(int id, int quantity) implements Command {}

  record Help() implements Command {}

  record Exit() implements Command {}

  /** A line of the help. */
  record Usage(String name, String arguments, String does) {
    String line() {
      return (name + " " + arguments).stripTrailing();
    }
  }

  List<Usage> USAGES =
      List.of(
          new Usage("ping", "", "tests the connection"),
          new Usage("topics", "[text]", "the topics, or those near a text"),
          new Usage("search", "<topic>", "books of a topic"),
          new Usage("lookup", "<id>", "one book"),
          new Usage("buy", "<id> [quantity]", "buys one copy, or as many as you say"),
          new Usage("help", "", "this list; ? as well"),
          new Usage("exit", "", "leaves; quit as well"));

  /** Whether a word is the name of a command. */
  static boolean isName(String word) {
    return Stream.concat(Stream.of("?", "quit"), USAGES.stream().map(Usage::name))
        .anyMatch(word::equals);
  }

  static Command parse(List<String> words) throws UsageException {
    String name = words.get(0);
    int count = words.size();
    String rest = String.join(" ", words.subList(1, count));
    Command command =
        switch (name) {
          case "ping" -> count == 1 ? new Ping() : null;
          case "topics" -> new Topics(rest);
          case "search" -> count > 1 ? new Search(rest) : null;
          case "lookup" -> count == 2 ? new Lookup(id(words.get(1))) : null;
          case "buy" ->
              count == 2 || count == 3
                  ? new Buy(id(words.get(1)), count == 2 ? 1 : quantity(words.get(2)))
                  : null;
          case "help", "?" -> count == 1 ? new Help() : null;
          case "exit", "quit" -> count == 1 ? new Exit() : null;
          default ->
              throw new UsageException("there is no command '" + name + "'; help lists them");
        };
    if (command == null) {
      String known = name.equals("?") ? "help" : name.equals("quit") ? "exit" : name;
      for (Usage usage : USAGES) {
        if (usage.name.equals(known)) {
          throw new UsageException("usage: " + usage.line());
        }
      }
    }
    return command;
  }

  /** The list that {@code help} prints. */
  static String help() {
    var columns = List.of(new Screen.Column("command", false), new Screen.Column("does", false));
    return Screen.table(
        columns, USAGES.stream().map(usage -> List.of(usage.line(), usage.does)).toList());
  }

  private static int id(String text) throws UsageException {
    return number(text)
        .orElseThrow(
            () ->
                new UsageException(
                    "id is '" + text + "'; it must be a whole number from 1 to 2147483647"));
  }

  private static int quantity(String text) throws UsageException {
    return number(text)
        .orElseThrow(
            () ->
                new UsageException("quantity is '" + text + "'; it must be a whole number from 1"));
  }

  private static OptionalInt number(String text) {
    if (!text.matches("\\+?0*[1-9][0-9]{0,9}")) {
      return OptionalInt.empty();
    }
    long number = Long.parseLong(text);
    return number <= Integer.MAX_VALUE ? OptionalInt.of((int) number) : OptionalInt.empty();
  }
}
