package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import io.grpc.Status;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.function.Supplier;
import java.util.function.ToIntFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jline.reader.EndOfFileException;
import org.jline.reader.LineReader;
import org.jline.reader.LineReaderBuilder;
import org.jline.reader.UserInterruptException;
import org.jline.reader.impl.completer.StringsCompleter;
import org.jline.utils.Signals;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.ExitCode;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.Spec;
import quire.client.Book;
import quire.client.BuyOutcome;
import quire.client.Page;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.QuireException;
import quire.client.Receipt;
import quire.client.RefusedException;
import quire.client.Reservation;
import quire.client.Topic;
import quire.client.UnreachableException;
import quire.connect.Connect;
import quire.connect.Json;

/** {@code quire-client}: the shopper's commands, one, or those of a prompt or a pipe. */
@Command(
    name = "quire-client",
    version = "quire-client 0.1.0",
    mixinStandardHelpOptions = true,
    subcommands = CommandLine.HelpCommand.class,
    description = {
      "Buys books of a Quire server, and asks what it has.%n",
      "Without a command: a prompt on a terminal, else commands from standard input, one a line.%n",
      "Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the"
          + " outcome is unknown. Several commands end with the highest of theirs.%n"
    })
public final class Main implements Callable<Integer> {
  private static final int REFUSED = 1;
  private static final int UNREACHABLE = 3;
  private static final int UNKNOWN = 4;

  @Mixin private Connect connect;
  @Spec private CommandSpec spec;

  @Option(
      names = "--json",
      scope = ScopeType.INHERIT,
      defaultValue = "false",
      description = "Print each answer as one line of JSON.")
  private boolean isJson;

  @Option(
      names = "--key",
      scope = ScopeType.INHERIT,
      description = "Makes a purchase or reservation happen once, 1 to 64 bytes; random if absent.")
  private String key;

  @Parameters(
      arity = "0..1",
      paramLabel = "ADDRESS",
      defaultValue = "127.0.0.1:10086",
      description = "HOST:PORT, a host, :PORT, http://… or https://…, or several with commas.")
  private String address;

  private final String[] given;

  /** Made with the first command, and used by all lines. */
  private QuireClient client;

  private Main(String[] given, QuireClient client) {
    this.given = given;
    this.client = client;
  }

  public static void main(String[] words) {
    System.exit(new Main(words, null).execute(words));
  }

  private int execute(String[] words) {
    return new CommandLine(this)
        .setExpandAtFiles(false)
        .setExecutionExceptionHandler((wrong, command, parsed) -> failed(wrong, command))
        .execute(words);
  }

  /** Runs each line; the exit code is the highest of theirs, so that a script misses no failure. */
  @Override
  public Integer call() throws IOException {
    if (Arrays.asList(given).contains(address) && !address.matches("(?s)localhost|.*[:.].*")) {
      throw new IllegalArgumentException("there is no command '" + address + "'; help lists them");
    }
    try (QuireClient client = client()) {
      var input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
      Callable<String> lines = Boolean.getBoolean("quire.terminal") ? prompt() : input::readLine;
      int worst = ExitCode.OK;
      for (String line = next(lines); line != null; line = next(lines)) {
        String[] words = line.strip().split("\\s+");
        if (words[0].equals("exit")) {
          break;
        } else if (!words[0].isEmpty()) {
          var all = Stream.concat(Arrays.stream(given), Arrays.stream(words));
          worst = Math.max(worst, new Main(given, client).execute(all.toArray(String[]::new)));
        }
      }
      return worst;
    }
  }

  private Callable<String> prompt() {
    String state = System.getenv().getOrDefault("XDG_STATE_HOME", "");
    Path home = Path.of(System.getProperty("user.home"), ".local", "state");
    LineReader reader =
        LineReaderBuilder.builder()
            .completer(new StringsCompleter(spec.subcommands().keySet()))
            .option(LineReader.Option.DISABLE_EVENT_EXPANSION, true)
            .variable(
                LineReader.HISTORY_FILE,
                (state.isEmpty() ? home : Path.of(state)).resolve("quire/client_history.java"))
            .build();
    return () -> reader.readLine("quire client> ");
  }

  private static String next(Callable<String> lines) throws IOException {
    try {
      return lines.call();
    } catch (UserInterruptException e) {
      return "";
    } catch (EndOfFileException e) {
      return null;
    } catch (Exception e) {
      throw new IOException("cannot read commands", e);
    }
  }

  private QuireClient client() {
    client = client == null ? connect.client(address) : client;
    return client;
  }

  @Command(description = "Tests the connection.")
  int ping() {
    QuireClient client = client();
    long start = System.nanoTime();
    String greeting = client.ping("quire client");
    long took = (System.nanoTime() - start) / 1000;
    String text = plain(greeting) + " (" + BigDecimal.valueOf(took / 10, 2) + " ms)";
    return show(
        ExitCode.OK, Json.object("success", true, "message", greeting, "microseconds", took), text);
  }

  @Command(description = "Lists the topics, or those near a text.")
  int topics(@Parameters(arity = "0..*") List<String> text) {
    String near = text == null ? "" : String.join(" ", text);
    List<Topic> topics = client().topicsNear(near).stream().toList();
    String lines =
        topics.stream()
            .map(topic -> "%8d  %s".formatted(topic.books(), plain(topic.name())))
            .collect(Collectors.joining("\n"));
    JsonObject json =
        Json.object("success", true, "topics", topics.stream().map(Json::object).toList());
    return show(ExitCode.OK, json, topics.isEmpty() ? "there is no such topic" : lines);
  }

  @Command(description = "Lists the books of a topic.")
  int search(@Parameters(arity = "1..*") List<String> topic) {
    String name = String.join(" ", topic);
    Page<Book> first = client().search(name).firstPage();
    List<Book> books = new ArrayList<>(first.items());
    for (var page = first.next(); page.isPresent(); page = page.get().next()) {
      books.addAll(page.get().items());
    }
    JsonObject json =
        Json.object(
            "success", true,
            "message", first.message(),
            "books", books.stream().map(Json::object).toList());
    List<String> near = books.isEmpty() ? near(name) : List.of();
    String text = plain(first.message());
    if (!near.isEmpty()) {
      json.add("near", Json.object("near", near).get("near"));
      text += "; near it: " + plain(String.join(", ", near));
    }
    String lines = books.stream().map(Main::line).collect(Collectors.joining("\n"));
    return show(ExitCode.OK, json, books.isEmpty() ? text : lines);
  }

  /** Topics near one that has no books; none from a server that cannot say. */
  private List<String> near(String topic) {
    try {
      return client().topicsNear(topic).firstPage().items().stream().map(Topic::name).toList();
    } catch (QuireException e) {
      return List.of();
    }
  }

  @Command(description = "Shows one book.")
  int lookup(@Parameters int id) {
    var found = client().lookup(id);
    JsonObject book = found.book().map(Json::object).orElse(null);
    JsonObject json =
        Json.object("success", book != null, "message", found.message(), "book", book);
    String text = found.book().map(Main::line).orElse(plain(found.message()));
    return show(book == null ? REFUSED : ExitCode.OK, json, text);
  }

  @Command(description = "Buys one copy, or as many as you say.")
  int buy(@Parameters int id, @Parameters(arity = "0..1", defaultValue = "1") int quantity) {
    Purchase purchase = purchase(id, quantity);
    return once(purchase.key(), () -> client().buy(purchase), outcome -> bought(purchase, outcome));
  }

  private int bought(Purchase purchase, BuyOutcome outcome) {
    int id = purchase.id();
    if (outcome instanceof BuyOutcome.Unknown unknown) {
      List<String> words = new ArrayList<>(List.of("buy", "" + id));
      words.addAll(purchase.quantity() == 1 ? List.of() : List.of("" + purchase.quantity()));
      String what = "book " + id + " was bought";
      return unknown(purchase.key(), unknown.code(), what, "buys", true, words);
    }
    boolean isBought = outcome instanceof BuyOutcome.Bought;
    // NoSuchBook is NO_SUCH_BOOK.
    String name = outcome.getClass().getSimpleName().replaceAll("(?<=.)([A-Z])", "_$1");
    boolean isKnown = !(outcome instanceof BuyOutcome.Declined);
    var left = outcome.stockLeft();
    JsonObject json =
        Json.object(
            "success", isBought,
            "message", outcome.message(),
            "key", outcome.key(),
            "outcome", "BUY_OUTCOME_" + (isKnown ? name.toUpperCase(Locale.ROOT) : "UNSPECIFIED"),
            "purchase_number", outcome.number(),
            "replayed", outcome.replayed(),
            "stock_left", left.isPresent() ? left.getAsInt() : null);
    String text = plain(outcome.message()) + " (purchase " + outcome.number() + ")";
    text += outcome.replayed() ? "; this key was sent before, nothing was bought again" : "";
    return show(isBought ? ExitCode.OK : REFUSED, json, text);
  }

  @Command(description = "Holds one copy, or as many as you say, for some seconds.")
  int reserve(
      @Parameters int id,
      @Parameters(arity = "0..1", defaultValue = "1") int quantity,
      @Parameters(arity = "0..1") Long seconds) {
    Purchase purchase = purchase(id, quantity);
    var time = Optional.ofNullable(seconds).map(Duration::ofSeconds);
    List<String> words = new ArrayList<>(List.of("reserve", "" + id));
    words.addAll(quantity == 1 && seconds == null ? List.of() : List.of("" + quantity));
    words.addAll(seconds == null ? List.of() : List.of("" + seconds));
    String what = "book " + id + " was reserved";
    return once(
        purchase.key(), () -> client().reserve(purchase, time), it -> show(it, what, true, words));
  }

  @Command(description = "Buys what a reservation holds.")
  int confirm(@Parameters(paramLabel = "<key>") String reservation) {
    return settle(reservation, () -> client().confirm(reservation), "confirm", "confirmed");
  }

  @Command(description = "Gives back what a reservation holds.")
  int release(@Parameters(paramLabel = "<key>") String reservation) {
    return settle(reservation, () -> client().release(reservation), "release", "released");
  }

  private int settle(String key, Supplier<Reservation> call, String command, String done) {
    String what = "the reservation was " + done;
    return once(key, call, it -> show(it, what, false, List.of(command, key)));
  }

  private int show(Reservation made, String what, boolean hasFlag, List<String> words) {
    if (made.code().isPresent()) {
      return unknown(made.key(), made.code().get(), what, "does", hasFlag, words);
    }
    JsonObject json = Json.object(made);
    json.addProperty("outcome", "RESERVATION_OUTCOME_" + made.outcome());
    String text = plain(made.message());
    boolean isHeld = made.outcome() == Reservation.Outcome.HELD;
    text += isHeld ? " (key " + plain(made.key()) + ")" : "";
    boolean isByCall = made.replayed() && made.outcome() != Reservation.Outcome.EXPIRED;
    text += isByCall ? "; an earlier call did it" : "";
    return show(made.success() ? ExitCode.OK : REFUSED, json, text);
  }

  @Command(description = "Shows the receipt of a purchase, for `quire receipt FILE --key KEY`.")
  int receipt(@Parameters long number, @Parameters(paramLabel = "<key>") String purchaseKey) {
    var found = client().receipt(number, purchaseKey);
    String receipt = found.receipt().map(Receipt::text).orElse(null);
    JsonObject json =
        Json.object(
            "success",
            receipt != null,
            "message",
            found.message(),
            "receipt",
            receipt,
            "log_key",
            found.receipt().map(Receipt::logKey).orElse(null));
    String said = receipt == null ? found.message() : receipt;
    String text = said.lines().map(Main::plain).collect(Collectors.joining("\n"));
    return show(receipt == null ? REFUSED : ExitCode.OK, json, text);
  }

  private Purchase purchase(int id, int quantity) {
    Purchase purchase = Purchase.of(id).quantity(quantity);
    return key == null ? purchase : purchase.key(key);
  }

  /** Shows what came of a call with a key; Ctrl-C leaves it in doubt. */
  private <T> int once(String key, Supplier<T> call, ToIntFunction<T> show) {
    T outcome;
    Object before = Signals.register("INT", Thread.currentThread()::interrupt);
    try {
      outcome = call.get();
    } catch (QuireException fault) {
      return fault(fault, "key", key);
    } finally {
      Signals.unregister("INT", before);
    }
    return show.applyAsInt(outcome);
  }

  @Command(description = "Leaves.")
  void exit() {}

  /** Shows the command that asks for the outcome of a call with a key, a flag or in its words. */
  private int unknown(
      String key, Status.Code code, String what, String does, boolean hasFlag, List<String> call) {
    List<String> words = new ArrayList<>(List.of("quire-client"));
    words.addAll(hasFlag ? List.of("--key", key) : List.of());
    words.addAll(isJson ? List.of("--json") : List.of());
    words.addAll(connect.files());
    words.add(address);
    words.addAll(call);
    String command = words.stream().map(Main::quoted).collect(Collectors.joining(" "));
    String text = "it is not known whether " + what + ": " + cause(code);
    JsonObject json = fault("UNKNOWN", code, text, "key", key, "command", command);
    String then = "; this asks, and " + does + " nothing twice:\n    " + plain(command);
    return show(UNKNOWN, json, text + then);
  }

  /** Shows a fault of the store's, or that the words are not understood. */
  private int failed(Exception wrong, CommandLine command) {
    if (wrong instanceof QuireException fault) {
      return fault(fault);
    }
    command.getErr().println("quire-client: " + plain(String.valueOf(wrong.getMessage())));
    return wrong instanceof IllegalArgumentException ? ExitCode.USAGE : REFUSED;
  }

  private int fault(QuireException fault, Object... more) {
    Status.Code code = fault.code();
    if (fault instanceof RefusedException) {
      String said = fault.getMessage().isEmpty() ? code.name() : fault.getMessage();
      return show(REFUSED, fault("REFUSED", code, said, more), plain(said));
    }
    boolean isSent = fault instanceof UnreachableException unreachable && unreachable.connected();
    String text = isSent ? address + " did not answer: " + cause(code) : fault.getMessage();
    Status.Code shown = isSent ? code : Status.Code.UNAVAILABLE;
    return show(UNREACHABLE, fault("UNREACHABLE", shown, text, more), plain(text));
  }

  private static JsonObject fault(String outcome, Status.Code code, String text, Object... more) {
    JsonObject json = Json.object(more);
    json.addProperty("success", false);
    json.addProperty("message", text);
    json.addProperty("outcome", outcome);
    json.addProperty("status", code.name());
    return json;
  }

  private int show(int exit, JsonObject json, String text) {
    boolean isFault = json.has("status") && !isJson;
    (isFault ? System.err : System.out).println(isJson ? Json.line(json) : text);
    return exit;
  }

  private static String cause(Status.Code code) {
    return switch (code) {
      case DEADLINE_EXCEEDED -> "time is up";
      case CANCELLED -> "interrupted";
      case UNKNOWN -> "the server failed";
      default -> "the connection broke, or the server is not available";
    };
  }

  private static String line(Book book) {
    return "%10d  %9s  %6d left  %s (%s)"
        .formatted(
            book.id(),
            BigDecimal.valueOf(book.priceCents(), 2).toPlainString(),
            book.stock(),
            plain(book.title()),
            plain(book.topic()));
  }

  /** The text of others, without what acts on a terminal. */
  private static String plain(String text) {
    return text.replaceAll("[\\p{Cc}\\p{Cf}]", "\ufffd");
  }

  private static String quoted(String word) {
    return word.matches("[A-Za-z0-9@%_+=:,./-]+") ? word : "'" + word.replace("'", "'\\''") + "'";
  }
}
