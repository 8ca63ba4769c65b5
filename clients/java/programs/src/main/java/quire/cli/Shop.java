package quire.cli;

import com.google.gson.JsonObject;
import io.grpc.Status;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Collectors;
import quire.cli.Screen.Column;
import quire.client.Book;
import quire.client.BuyOutcome;
import quire.client.Page;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.QuireException;
import quire.client.RefusedException;
import quire.client.Topic;
import quire.client.UnreachableException;

/** Does commands, and says what came of them. Must not know where they come from. */
final class Shop {
  private static final String PROGRAM = "quire-client";

  private static final List<Column> BOOK_COLUMNS =
      List.of(
          new Column("id", true),
          new Column("title", false),
          new Column("topic", false),
          new Column("stock", true),
          new Column("price", true));

  private final QuireClient client;
  private final String address;
  private final Arguments arguments;
  private final Seen seen;

  /** {@code address} is as the user gave it. */
  Shop(QuireClient client, String address, Arguments arguments, Seen seen) {
    this.client = client;
    this.address = address;
    this.arguments = arguments;
    this.seen = seen;
  }

  Answer run(Command command) throws UsageException {
    try {
      if (command instanceof Command.Ping) {
        return ping();
      } else if (command instanceof Command.Topics topics) {
        return topics(topics.near());
      } else if (command instanceof Command.Search search) {
        return search(search.topic());
      } else if (command instanceof Command.Lookup lookup) {
        return lookup(lookup.id());
      } else if (command instanceof Command.Buy buy) {
        return buy(buy.id(), buy.quantity());
      }
      throw new IllegalArgumentException(command + " is no question to the store");
    } catch (QuireException fault) {
      return fault(fault);
    }
  }

  private Answer ping() {
    long start = System.nanoTime();
    String greeting = client.ping("quire client");
    long took = System.nanoTime() - start;
    JsonObject json =
        Json.object("message", greeting, "microseconds", took / 1000, "success", true);
    BigDecimal ms = BigDecimal.valueOf(took / 10_000, 2);
    return Answer.of(true, Screen.line(greeting) + " (" + ms.toPlainString() + " ms)", json);
  }

  private Answer topics(String near) {
    List<Topic> topics = client.topicsNear(near).stream().toList();
    topics.forEach(topic -> seen.topic(topic.name()));
    List<JsonObject> listed =
        topics.stream().map(it -> Json.object("books", it.books(), "name", it.name())).toList();
    JsonObject json = Json.object("success", true, "topics", listed);
    String text =
        near.isEmpty() ? "there are no topics" : "no topic is near '" + Screen.line(near) + "'";
    if (!topics.isEmpty()) {
      text =
          Screen.table(
              List.of(new Column("topic", false), new Column("books", true)),
              topics.stream()
                  .map(topic -> List.of(topic.name(), Long.toString(topic.books())))
                  .toList());
    }
    return Answer.of(true, text, json);
  }

  private Answer search(String topic) {
    Page<Book> first = client.search(topic).firstPage();
    List<Book> books = new ArrayList<>();
    for (Optional<Page<Book>> page = Optional.of(first); page.isPresent(); ) {
      books.addAll(page.get().items());
      page = page.get().next();
    }
    List<JsonObject> listed = books.stream().map(Json::object).toList();
    List<String> near = books.isEmpty() ? near(topic) : List.of();
    if (near.isEmpty()) {
      String text = books.isEmpty() ? Screen.line(first.message()) : table(books);
      JsonObject json = Json.object("books", listed, "message", first.message(), "success", true);
      return Answer.of(true, text, json);
    }
    String text =
        near.stream()
            .map(name -> "'" + Screen.line(name) + "'")
            .collect(Collectors.joining(", ", Screen.line(first.message()) + "; near it: ", ""));
    JsonObject json =
        Json.object("books", listed, "message", first.message(), "near", near, "success", true);
    return Answer.of(true, text, json);
  }

  /** Topics near one that has no books; none from a server that cannot say. */
  private List<String> near(String topic) {
    try {
      return client.topicsNear(topic).firstPage().items().stream().map(Topic::name).toList();
    } catch (QuireException e) {
      return List.of();
    }
  }

  private Answer lookup(int id) {
    var found = client.lookup(id);
    JsonObject book = found.book().map(Json::object).orElse(null);
    boolean isFound = book != null;
    JsonObject json = Json.object("book", book, "message", found.message(), "success", isFound);
    String text = found.book().map(it -> table(List.of(it))).orElse(Screen.line(found.message()));
    return Answer.of(isFound, text, json);
  }

  private Answer buy(int id, int quantity) throws UsageException {
    Purchase purchase = Purchase.of(id).quantity(quantity);
    if (arguments.key() != null) {
      purchase = purchase.key(arguments.key());
    }
    BuyOutcome outcome;
    try {
      outcome = client.buy(purchase);
    } catch (QuireException fault) {
      return fault(fault, "key", purchase.key());
    }
    if (outcome instanceof BuyOutcome.Unknown unknown) {
      return unknown(purchase, unknown.code());
    }
    boolean bought = outcome instanceof BuyOutcome.Bought;
    var left = outcome.stockLeft();
    JsonObject json =
        Json.object(
            "key", outcome.key(),
            "message", outcome.message(),
            "outcome", "BUY_OUTCOME_" + name(outcome),
            "purchase_number", outcome.number(),
            "replayed", outcome.replayed(),
            "stock_left", left.isPresent() ? left.getAsInt() : null,
            "success", bought);
    String text = Screen.line(outcome.message());
    text += bought ? " (purchase " + outcome.number() + ")" : "";
    text += outcome.replayed() ? "; this key was sent before, nothing was bought again" : "";
    return Answer.of(bought, text, json);
  }

  private Answer unknown(Purchase purchase, Status.Code code) {
    List<String> words = new ArrayList<>(List.of(PROGRAM, "--key", purchase.key()));
    if (arguments.flags().containsKey("json")) {
      words.add("--json");
    }
    for (String flag : List.of("ca", "certificate", "key-file")) {
      if (arguments.flags().containsKey(flag)) {
        words.addAll(List.of("--" + flag, arguments.flags().get(flag)));
      }
    }
    words.addAll(List.of(address, "buy", Integer.toString(purchase.id())));
    if (purchase.quantity() != 1) {
      words.add(Integer.toString(purchase.quantity()));
    }
    String command = Screen.quoted(words);
    String text =
        """
        it is not known whether book %d was bought: %s
        the purchase has the key %s; this asks for its outcome and buys nothing twice:
            %s\
        """
            .formatted(purchase.id(), cause(code), Screen.line(purchase.key()), command);
    return answer(Answer.UNKNOWN, "UNKNOWN", code, text, "command", command, "key", purchase.key());
  }

  private Answer fault(QuireException fault, Object... more) {
    if (fault instanceof RefusedException) {
      String said = Screen.line(fault.getMessage());
      String text = said.isEmpty() ? fault.code().name() : said;
      return answer(Answer.REFUSED, "REFUSED", fault.code(), text, more);
    }
    boolean connected =
        fault instanceof UnreachableException unreachable && unreachable.connected();
    String text =
        Screen.line(address)
            + (connected
                ? " did not answer: " + cause(fault.code())
                : " cannot be reached; is a server running there?");
    Status.Code code = connected ? fault.code() : Status.Code.UNAVAILABLE;
    return answer(Answer.UNREACHABLE, "UNREACHABLE", code, text, more);
  }

  private static Answer answer(
      int exit, String outcome, Status.Code code, String text, Object... more) {
    List<Object> pairs = new ArrayList<>(List.of(more));
    pairs.addAll(
        List.of("message", text, "outcome", outcome, "status", code.name(), "success", false));
    return new Answer(exit, true, text, Json.object(pairs.toArray()));
  }

  private static String cause(Status.Code code) {
    return switch (code) {
      case DEADLINE_EXCEEDED -> "time is up";
      case CANCELLED -> "interrupted";
      case UNKNOWN -> "the server failed";
      default -> "the connection broke, or the server is not available";
    };
  }

  /** As the contract on the wire names it; a server of the first contract names none. */
  private static String name(BuyOutcome outcome) {
    boolean isNamed =
        outcome instanceof BuyOutcome.Bought
            ? outcome.number() != 0
            : !(outcome instanceof BuyOutcome.Declined);
    // NoSuchBook is NO_SUCH_BOOK.
    String name = outcome.getClass().getSimpleName().replaceAll("(?<=.)([A-Z])", "_$1");
    return isNamed ? name.toUpperCase(Locale.ROOT) : "UNSPECIFIED";
  }

  private String table(List<Book> books) {
    seen.books(books);
    return Screen.table(
        BOOK_COLUMNS,
        books.stream()
            .map(
                book ->
                    List.of(
                        Integer.toString(book.id()),
                        book.title(),
                        book.topic(),
                        Integer.toString(book.stock()),
                        BigDecimal.valueOf(book.priceCents(), 2).toPlainString()))
            .toList());
  }
}
