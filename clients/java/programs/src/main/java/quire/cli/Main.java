package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static quire.connect.Text.plain;

import com.google.gson.JsonObject;
import io.grpc.Status;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.jline.reader.EndOfFileException;
import org.jline.reader.LineReader;
import org.jline.reader.LineReaderBuilder;
import org.jline.reader.UserInterruptException;
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
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.QuireException;
import quire.client.RefusedException;
import quire.client.Reservation;
import quire.connect.Connect;
import quire.connect.Json;
import quire.connect.Text;

/** {@code quire-client}: the shopper's commands, one, or those of a prompt or a pipe. */
@Command(
    name = "quire-client",
    version = "quire-client 0.1.0",
    mixinStandardHelpOptions = true,
    subcommands = CommandLine.HelpCommand.class,
    description = {
      "Buys books of a Quire server, and asks what it has.%n",
      "Without a command: a prompt on a terminal, else commands from standard input, one a line.%n",
      "Exit codes: 0 done; 1 refused; 2 usage; 3 unreachable; 4 unknown; of several the highest.%n"
    })
public final class Main implements Callable<Integer> {
  private static final int REFUSED = 1;
  // Exit codes of faults that are no refusals.
  private static final Map<String, Integer> FAULTS = Map.of("UNREACHABLE", 3, "UNKNOWN", 4);

  @Mixin private Connect connect;
  @Spec private CommandSpec spec;

  // With the default it may be given twice.
  @Option(
      names = "--json",
      scope = ScopeType.INHERIT,
      defaultValue = "false",
      description = "Print each answer as one line of JSON.")
  private boolean isJson;

  @Option(names = "--key", scope = ScopeType.INHERIT, description = "1 to 64 bytes; else random.")
  private String key;

  @Parameters(
      arity = "0..1",
      paramLabel = "ADDRESS",
      defaultValue = "127.0.0.1:10086",
      description = "HOST:PORT, a host, :PORT, http://… or https://…, or several with commas.")
  private String address;

  private final String[] given;
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
  public Integer call() throws Exception {
    if (List.of(given).contains(address) && !address.matches("(?s)localhost|.*[:.].*")) {
      throw new IllegalArgumentException("there is no command '" + address + "'; help lists them");
    }
    try (QuireClient client = client()) {
      var input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
      Callable<String> lines = Boolean.getBoolean("quire.terminal") ? prompt() : input::readLine;
      int worst = ExitCode.OK;
      for (String line = lines.call(); line != null; line = lines.call()) {
        String[] words = line.strip().split("\\s+");
        if (line.strip().equals("exit")) {
          break;
        } else if (!words[0].isEmpty()) {
          var all = Stream.of(given, words).flatMap(Stream::of);
          worst = Math.max(worst, new Main(given, client).execute(all.toArray(String[]::new)));
        }
      }
      return worst;
    }
  }

  private Callable<String> prompt() {
    String state = System.getenv().getOrDefault("XDG_STATE_HOME", "");
    String folder = state.isEmpty() ? System.getProperty("user.home") + "/.local/state" : state;
    LineReader reader =
        LineReaderBuilder.builder()
            .option(LineReader.Option.DISABLE_EVENT_EXPANSION, true)
            .variable(LineReader.HISTORY_FILE, folder + "/quire/client_history.java")
            .build();
    return () -> {
      try {
        return reader.readLine("quire client> ");
      } catch (UserInterruptException e) {
        return "";
      } catch (EndOfFileException e) {
        return null;
      }
    };
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
    return show(Json.object("success", true, "message", greeting, "microseconds", took), text);
  }

  @Command(description = "Lists the topics, or those near a text.")
  int topics(@Parameters(arity = "0..*") List<String> text) {
    String near = text == null ? "" : String.join(" ", text);
    var topics = client().topicsNear(near).stream().toList();
    var json = Json.object("success", true, "topics", topics.stream().map(Json::object).toList());
    var shown = lines(topics, it -> "%8d  %s".formatted(it.books(), plain(it.name())), "no topics");
    return show(json, shown);
  }

  @Command(description = "Lists the books of a topic.")
  int search(@Parameters(arity = "1..*") List<String> topic) {
    String name = String.join(" ", topic);
    var first = client().search(name).firstPage();
    var pages = Stream.iterate(Optional.of(first), Optional::isPresent, it -> it.get().next());
    List<Book> books = pages.flatMap(it -> it.get().items().stream()).toList();
    String none = first.message();
    var listed = books.stream().map(Json::object).toList();
    var json = Json.object("success", true, "message", none, "books", listed);
    List<String> near = books.isEmpty() ? near(name) : List.of();
    if (!near.isEmpty()) {
      json.add("near", Json.object("near", near).get("near"));
      none += "; near it: " + String.join(", ", near);
    }
    return show(json, lines(books, Main::line, plain(none)));
  }

  /** Topics near one that has no books; empty if the server does not support the call. */
  private List<String> near(String topic) {
    try {
      return client().topicsNear(topic).stream().map(it -> it.name()).toList();
    } catch (QuireException e) {
      return List.of();
    }
  }

  @Command(description = "Shows one book.")
  int lookup(@Parameters int id) {
    var found = client().lookup(id);
    JsonObject book = found.book().map(Json::object).orElse(null);
    var json = Json.object("success", book != null, "message", found.message(), "book", book);
    return show(json, found.book().map(Main::line).orElse(plain(found.message())));
  }

  @Command(description = "Shows the receipt of a purchase, for `quire receipt FILE --key KEY`.")
  int receipt(@Parameters long number, @Parameters(paramLabel = "<key>") String purchaseKey) {
    var found = client().receipt(number, purchaseKey);
    String text = found.receipt().map(it -> it.text()).orElse(null);
    String logKey = found.receipt().map(it -> it.logKey()).orElse(null);
    var json = Json.object("success", text != null, "message", found.message(), "receipt", text);
    json.addProperty("log_key", logKey);
    String shown = text == null ? found.message() : text;
    return show(json, lines(shown.lines().toList(), Text::plain, ""));
  }

  @Command(description = "Buys one copy, or as many as you say.")
  int buy(@Parameters int id, @Parameters(arity = "0..1", defaultValue = "1") int quantity) {
    Purchase purchase = purchase(id, quantity);
    return once(purchase.key(), () -> bought(client().buy(purchase)));
  }

  @Command(description = "Holds one copy, or as many as you say, for some seconds.")
  int reserve(
      @Parameters int id,
      @Parameters(arity = "0..1", defaultValue = "1") int quantity,
      @Parameters(arity = "0..1") Long seconds) {
    Purchase purchase = purchase(id, quantity);
    var time = Optional.ofNullable(seconds).map(Duration::ofSeconds);
    return once(purchase.key(), () -> reserved(client().reserve(purchase, time)));
  }

  @Command(description = "Buys what a reservation holds.")
  int confirm(@Parameters(paramLabel = "<key>") String held) {
    return once(held, () -> reserved(client().confirm(held)));
  }

  @Command(description = "Gives back what a reservation holds.")
  int release(@Parameters(paramLabel = "<key>") String held) {
    return once(held, () -> reserved(client().release(held)));
  }

  @Command(description = "Leaves.")
  void exit() {}

  private Purchase purchase(int id, int quantity) {
    Purchase purchase = Purchase.of(id).quantity(quantity);
    return key == null ? purchase : purchase.key(key);
  }

  private static JsonObject bought(BuyOutcome outcome) {
    if (outcome instanceof BuyOutcome.Unknown unknown) {
      return fault("UNKNOWN", unknown.code(), unknown.message());
    }
    JsonObject json = Json.object(outcome);
    String name = Json.name(outcome).toUpperCase(Locale.ROOT).replace("NOT_BOUGHT", "UNSPECIFIED");
    json.addProperty("outcome", "BUY_OUTCOME_" + name);
    return json;
  }

  private static JsonObject reserved(Reservation made) {
    if (made.code().isPresent()) {
      return fault("UNKNOWN", made.code().get(), made.message());
    }
    JsonObject json = Json.object(made);
    json.addProperty("outcome", "RESERVATION_OUTCOME_" + made.outcome());
    return json;
  }

  /** Shows what came of a call that its key makes happen once; Ctrl-C leaves it in doubt. */
  private int once(String key, Supplier<JsonObject> call) {
    JsonObject json;
    Object before = Signals.register("INT", Thread.currentThread()::interrupt);
    try {
      json = call.get();
    } catch (QuireException fault) {
      json = fault(fault);
    } finally {
      Signals.unregister("INT", before);
    }
    json.addProperty("key", key);
    String message = json.get("message").getAsString();
    boolean isReplayed = json.has("replayed") && json.get("replayed").getAsBoolean();
    long number = json.has("purchase_number") ? json.get("purchase_number").getAsLong() : 0;
    String bought = number > 0 ? " (purchase " + number + ")" : "";
    String more = bought + (isReplayed ? "; the answer to an earlier call" : "");
    switch (json.get("outcome").getAsString()) {
      case "RESERVATION_OUTCOME_HELD" -> more = " (key " + plain(key) + ")" + more;
      case "RESERVATION_OUTCOME_EXPIRED" -> more = "";
      case "UNKNOWN" -> {
        var typed = spec.commandLine().getParseResult().subcommand();
        List<String> words = new ArrayList<>(List.of(typed.commandSpec().name()));
        typed.matchedPositionals().forEach(it -> words.addAll(it.originalStringValues()));
        message = "it is not known whether '" + String.join(" ", words) + "' was done: " + message;
        String again = again(key, words);
        json.addProperty("message", message);
        json.addProperty("command", again);
        more = "; this asks, and does nothing twice:\n    " + plain(again);
      }
      default -> {}
    }
    return show(json, plain(message) + more);
  }

  /** The command line that sends a command again. */
  private String again(String key, List<String> words) {
    List<String> line = new ArrayList<>(List.of("quire-client"));
    if (List.of("buy", "reserve").contains(words.get(0))) {
      line.addAll(key.startsWith("-") ? List.of("--key=" + key) : List.of("--key", key));
    }
    line.addAll(isJson ? List.of("--json") : List.of());
    line.addAll(connect.files());
    line.addAll(List.of(address, words.remove(0)));
    line.addAll(words.get(0).startsWith("-") ? List.of("--") : List.of());
    line.addAll(words);
    return String.join(" ", line.stream().map(Text::quoted).toList());
  }

  /** Shows a fault of the store's, or that the words are not understood. */
  private int failed(Exception wrong, CommandLine command) {
    if (wrong instanceof QuireException fault) {
      return show(fault(fault), plain(fault.getMessage()));
    }
    command.getErr().println("quire-client: " + plain(String.valueOf(wrong.getMessage())));
    return wrong instanceof IllegalArgumentException ? ExitCode.USAGE : REFUSED;
  }

  private static JsonObject fault(QuireException fault) {
    String outcome = fault instanceof RefusedException ? "REFUSED" : "UNREACHABLE";
    return fault(outcome, fault.code(), fault.getMessage());
  }

  private static JsonObject fault(String outcome, Status.Code code, String message) {
    return Json.object(
        "success", false, "message", message, "outcome", outcome, "status", code.name());
  }

  private int show(JsonObject json, String text) {
    boolean isFault = json.has("status");
    (isFault && !isJson ? System.err : System.out).println(isJson ? Json.line(json) : text);
    int exit = json.get("success").getAsBoolean() ? ExitCode.OK : REFUSED;
    return isFault ? FAULTS.getOrDefault(json.get("outcome").getAsString(), REFUSED) : exit;
  }

  private static <T> String lines(List<T> items, Function<T, String> line, String none) {
    return items.isEmpty() ? none : String.join("\n", items.stream().map(line).toList());
  }

  private static String line(Book book) {
    BigDecimal price = BigDecimal.valueOf(book.priceCents(), 2);
    String text = "%10d  %9s  %6d left  ".formatted(book.id(), price, book.stock());
    return text + plain(book.title()) + " (" + plain(book.topic()) + ")";
  }
}
