package quire.cli;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import io.grpc.Status;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
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
    JsonObject json = new JsonObject();
    json.addProperty("message", greeting);
    json.addProperty("microseconds", took / 1000);
    json.addProperty("success", true);
    BigDecimal ms = BigDecimal.valueOf(took / 10_000, 2);
    return Answer.of(true, Screen.line(greeting) + " (" + ms.toPlainString() + " ms)", json);
  }

  private Answer topics(String near) {
    List<Topic> topics = client.topicsNear(near).stream().toList();
    JsonArray listed = new JsonArray();
    for (Topic topic : topics) {
      seen.topic(topic.name());
      JsonObject one = new JsonObject();
      one.addProperty("books", topic.books());
      one.addProperty("name", topic.name());
      listed.add(one);
    }
    JsonObject json = new JsonObject();
    json.addProperty("success", true);
    json.add("topics", listed);
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
    JsonArray listed = new JsonArray();
    books.forEach(book -> listed.add(json(book)));
    JsonObject json = new JsonObject();
    json.add("books", listed);
    json.addProperty("message", first.message());
    String text = books.isEmpty() ? Screen.line(first.message()) : table(books);
    List<String> near = books.isEmpty() ? near(topic) : List.of();
    if (!near.isEmpty()) {
      JsonArray names = new JsonArray();
      near.forEach(names::add);
      json.add("near", names);
      text +=
          near.stream()
              .map(name -> "'" + Screen.line(name) + "'")
              .collect(Collectors.joining(", ", "; near it: ", ""));
    }
    json.addProperty("success", true);
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
    JsonObject json = new JsonObject();
    json.add("book", found.book().<JsonElement>map(Shop::json).orElse(JsonNull.INSTANCE));
    json.addProperty("message", found.message());
    json.addProperty("success", found.book().isPresent());
    String text =
        found.book().map(book -> table(List.of(book))).orElse(Screen.line(found.message()));
    return Answer.of(found.book().isPresent(), text, json);
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
      Answer answer = fault(fault);
      JsonObject json = new JsonObject();
      json.addProperty("key", purchase.key());
      answer.json().asMap().forEach(json::add);
      return new Answer(answer.exit(), true, answer.text(), json);
    }
    if (outcome instanceof BuyOutcome.Unknown unknown) {
      return unknown(purchase, unknown.code());
    }
    boolean bought = outcome instanceof BuyOutcome.Bought;
    JsonObject json = new JsonObject();
    json.addProperty("key", outcome.key());
    json.addProperty("message", outcome.message());
    json.addProperty("outcome", "BUY_OUTCOME_" + name(outcome));
    json.addProperty("purchase_number", outcome.number());
    json.addProperty("replayed", outcome.replayed());
    var left = outcome.stockLeft();
    json.addProperty("stock_left", left.isPresent() ? left.getAsInt() : null);
    json.addProperty("success", bought);
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
        "it is not known whether book %d was bought: %s\nthe purchase has the key %s; this asks for its outcome and buys nothing twice:\n    %s"
            .formatted(purchase.id(), cause(code), Screen.line(purchase.key()), command);
    JsonObject json = new JsonObject();
    json.addProperty("command", command);
    json.addProperty("key", purchase.key());
    fault(json, text, "UNKNOWN", code);
    return new Answer(Answer.UNKNOWN, true, text, json);
  }

  private Answer fault(QuireException fault) {
    JsonObject json = new JsonObject();
    if (fault instanceof RefusedException) {
      String said = Screen.line(fault.getMessage());
      String text = said.isEmpty() ? fault.code().name() : said;
      fault(json, text, "REFUSED", fault.code());
      return new Answer(Answer.REFUSED, true, text, json);
    }
    boolean connected =
        fault instanceof UnreachableException unreachable && unreachable.connected();
    String text =
        Screen.line(address)
            + (connected
                ? " did not answer: " + cause(fault.code())
                : " cannot be reached; is a server running there?");
    fault(json, text, "UNREACHABLE", connected ? fault.code() : Status.Code.UNAVAILABLE);
    return new Answer(Answer.UNREACHABLE, true, text, json);
  }

  private static void fault(JsonObject json, String text, String outcome, Status.Code code) {
    json.addProperty("message", text);
    json.addProperty("outcome", outcome);
    json.addProperty("status", code.name());
    json.addProperty("success", false);
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
    if (outcome instanceof BuyOutcome.Bought bought) {
      return bought.number() == 0 ? "UNSPECIFIED" : "BOUGHT";
    } else if (outcome instanceof BuyOutcome.SoldOut) {
      return "SOLD_OUT";
    } else if (outcome instanceof BuyOutcome.TooFew) {
      return "TOO_FEW";
    } else if (outcome instanceof BuyOutcome.NoSuchBook) {
      return "NO_SUCH_BOOK";
    }
    return "UNSPECIFIED";
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

  /** A book, with the fields that the contract names. */
  static JsonObject json(Book book) {
    JsonObject json = new JsonObject();
    json.addProperty("id", book.id());
    json.addProperty("price_cents", book.priceCents());
    json.addProperty("stock", book.stock());
    json.addProperty("title", book.title());
    json.addProperty("topic", book.topic());
    return json;
  }
}
