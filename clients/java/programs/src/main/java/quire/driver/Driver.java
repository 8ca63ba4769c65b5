package quire.driver;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Parameters;
import quire.client.Book;
import quire.client.BuyOutcome;
import quire.client.CreateOutcome;
import quire.client.DeleteOutcome;
import quire.client.Entry;
import quire.client.LogEntry;
import quire.client.Lookup;
import quire.client.OutcomeUnknownException;
import quire.client.PriceChange;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.QuireException;
import quire.client.QuireOperator;
import quire.client.Receipt;
import quire.client.RefusedException;
import quire.client.Reservation;
import quire.client.Topic;
import quire.client.UpdateOutcome;
import quire.client.WatchEvent;
import quire.client.Write;
import quire.connect.Connect;
import quire.connect.Json;

/** Calls the library for each line of JSON on standard input, and answers in lines of JSON. */
@Command(name = "driver")
public final class Driver implements Callable<Void> {
  private static final int AT_ONCE = 64;
  @Mixin private Connect connect;
  @Mixin private Bench bench;

  @Parameters(arity = "1..2", paramLabel = "[bench] ADDRESS")
  private List<String> words;

  private QuireClient client;
  private final PrintStream out =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);

  public static void main(String[] words) {
    System.exit(new CommandLine(new Driver()).execute(words));
  }

  @Override
  public Void call() throws IOException, InterruptedException {
    if (words.size() > 1) {
      bench.run(words.get(1));
      return null;
    }
    try (QuireClient made = connect.client(words.get(0))) {
      client = made;
      serve();
    }
    return null;
  }

  private void serve() throws IOException, InterruptedException {
    ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
    Semaphore free = new Semaphore(AT_ONCE);
    var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      free.acquire();
      pool.execute(
          () -> {
            reply(request, answer(request));
            free.release();
          });
    }
    free.acquire(AT_ONCE);
    pool.shutdown();
  }

  private void reply(JsonObject request, JsonObject answer) {
    answer.add("n", request.get("n"));
    synchronized (out) {
      out.println(answer);
      out.flush();
    }
  }

  private JsonObject answer(JsonObject request) {
    try {
      OptionalLong timeout = number(request, "timeout_ms");
      QuireClient caller = client;
      if (timeout.isPresent()) {
        caller = caller.withTimeout(Duration.ofMillis(timeout.getAsLong()));
      }
      caller = caller.withTrace(text(request, "traceparent"), text(request, "tracestate"));
      return call(caller, request);
    } catch (QuireException e) {
      String error =
          e instanceof RefusedException
              ? "refused"
              : e instanceof OutcomeUnknownException ? "outcome_unknown" : "unreachable";
      var fault = Json.object("error", error, "code", e.code().name(), "message", e.getMessage());
      if (request.has("cause")) {
        fault.addProperty("cause", root(e).toString());
      }
      return fault;
    } catch (RuntimeException e) {
      // A wrong argument, or a request that lacks one.
      return Json.object("error", "argument", "message", e.toString());
    }
  }

  private static Throwable root(Throwable fault) {
    return fault.getCause() == null ? fault : root(fault.getCause());
  }

  private JsonObject call(QuireClient client, JsonObject request) {
    return switch (request.get("call").getAsString()) {
      case "ping" -> Json.object("message", got(client.pingAsync("driver")));
      case "search" -> {
        String topic = text(request, "topic");
        var books =
            request.has("page_size")
                ? client.search(topic, request.get("page_size").getAsInt())
                : client.search(topic);
        yield Json.object("ids", books.stream().map(Book::id).toList());
      }
      case "topics" -> {
        var topics =
            request.has("near") ? client.topicsNear(text(request, "near")) : client.topics();
        yield Json.object("names", topics.stream().map(Topic::name).toList());
      }
      case "lookup" -> {
        Lookup found = got(client.lookupAsync(request.get("id").getAsInt()));
        yield Json.object("book", found.book().map(Json::object).orElse(null));
      }
      case "buy" -> buy(client, request);
      case "receipt" -> {
        var found =
            got(client.receiptAsync(request.get("number").getAsLong(), text(request, "key")));
        yield Json.object(
            "receipt", found.receipt().map(Receipt::text).orElse(null),
            "log_key", found.receipt().map(Receipt::logKey).orElse(null));
      }
      case "reserve" -> {
        OptionalLong seconds = number(request, "seconds");
        var time = seconds.stream().mapToObj(Duration::ofSeconds).findFirst();
        yield reservation(got(client.reserveAsync(purchase(request), time)));
      }
      case "confirm" -> reservation(got(client.confirmAsync(text(request, "key"))));
      case "release" -> reservation(got(client.releaseAsync(text(request, "key"))));
      case "create" ->
          got(client.createAsync(write(request))) instanceof CreateOutcome.Created created
              ? Json.object("version", created.version())
              : Json.object("outcome", "exists");
      case "put" -> Json.object("version", got(client.putAsync(write(request))));
      case "update" -> {
        UpdateOutcome update = got(client.updateAsync(write(request)));
        yield update instanceof UpdateOutcome.Updated updated
            ? Json.object("version", updated.version())
            : Json.object("outcome", Json.name(update));
      }
      case "get" -> {
        Entry entry = got(client.getAsync(bytes(request, "key"))).orElse(null);
        if (entry == null) {
          yield Json.object("outcome", "no_such_key");
        }
        var answer = Json.object("value", base64(entry.value()), "version", entry.version());
        entry.timeLeft().ifPresent(left -> answer.addProperty("ttl_ms", left.toMillis()));
        yield answer;
      }
      case "delete" -> {
        OptionalLong expected = number(request, "expected_version");
        yield got(client.deleteAsync(bytes(request, "key"), expected))
                instanceof DeleteOutcome.Deleted deleted
            ? Json.object("deleted", deleted.existed())
            : Json.object("outcome", "another_version");
      }
      case "scan" -> {
        ByteString prefix = bytes(request, "prefix");
        boolean keysOnly = request.has("keys_only") && request.get("keys_only").getAsBoolean();
        var entries = (keysOnly ? client.scanKeys(prefix) : client.scan(prefix)).stream().toList();
        var keys = entries.stream().map(it -> base64(it.key())).toList();
        yield keysOnly
            ? Json.object("keys", keys)
            : Json.object(
                "keys", keys, "values", entries.stream().map(it -> base64(it.value())).toList());
      }
      case "watch" -> watch(client, request);
      default -> call(admin(client), request);
    };
  }

  private static JsonObject call(QuireOperator admin, JsonObject request) {
    return switch (request.get("call").getAsString()) {
      case "list" -> Json.object("ids", admin.list().stream().map(Book::id).toList());
      case "restock" -> {
        OptionalLong amount = number(request, "amount");
        yield Json.object(
            "raised",
            got(
                admin.restockAsync(
                    amount.isPresent()
                        ? OptionalInt.of((int) amount.getAsLong())
                        : OptionalInt.empty())));
      }
      case "update_price" -> {
        int id = request.get("id").getAsInt();
        var change = got(admin.updatePriceAsync(id, request.get("cents").getAsLong()));
        yield Json.object(
            "before", change.map(PriceChange::beforeCents).orElse(null),
            "after", change.map(PriceChange::afterCents).orElse(null));
      }
      case "log" -> {
        var entries = admin.log().stream().limit(request.get("limit").getAsLong());
        yield Json.object("numbers", entries.map(LogEntry::number).toList());
      }
      case "tail_log" -> {
        try (var tail = admin.tailLog(number(request, "after"))) {
          List<Long> numbers = new ArrayList<>();
          while (numbers.size() < request.get("entries").getAsInt()) {
            numbers.add(tail.next().number());
          }
          yield Json.object("numbers", numbers);
        }
      }
      default -> throw new IllegalArgumentException("there is no call " + request.get("call"));
    };
  }

  private static Purchase purchase(JsonObject request) {
    Purchase purchase = Purchase.of(request.get("id").getAsInt());
    if (request.has("quantity")) {
      purchase = purchase.quantity(request.get("quantity").getAsInt());
    }
    if (request.has("key")) {
      purchase = purchase.key(text(request, "key"));
    }
    return purchase;
  }

  private static JsonObject reservation(Reservation reservation) {
    JsonObject answer = Json.object(reservation);
    for (String name : List.of("success", "message")) {
      answer.remove(name);
    }
    for (String name : List.of("id", "quantity", "number", "until_ms")) {
      if (answer.get(name).getAsLong() == 0) {
        answer.remove(name);
      }
    }
    if (reservation.stockLeft().isEmpty()) {
      answer.remove("stock_left");
    }
    return answer;
  }

  private static JsonObject buy(QuireClient client, JsonObject request) {
    BuyOutcome outcome = got(client.buyAsync(purchase(request)));
    JsonObject answer =
        Json.object(
            "outcome", Json.name(outcome), "key", outcome.key(), "replayed", outcome.replayed());
    outcome.stockLeft().ifPresent(left -> answer.addProperty("stock_left", left));
    if (outcome instanceof BuyOutcome.Bought) {
      answer.addProperty("number", outcome.number());
    }
    return answer;
  }

  private JsonObject watch(QuireClient client, JsonObject request) {
    try (var events = client.watch(bytes(request, "prefix"))) {
      events.next();
      reply(request, Json.object("started", true));
      List<String> kinds = new ArrayList<>();
      List<String> keys = new ArrayList<>();
      while (kinds.size() < request.get("events").getAsInt()) {
        WatchEvent event = events.next();
        kinds.add(Json.name(event));
        keys.add(base64(event.key()));
      }
      return Json.object("kinds", kinds, "keys", keys);
    }
  }

  private static String text(JsonObject request, String name) {
    return request.has(name) ? request.get(name).getAsString() : "";
  }

  private QuireOperator admin(QuireClient client) {
    if (connect.token == null) {
      throw new IllegalArgumentException("an operator's call needs --token");
    }
    return client.operator(connect.token);
  }

  /** The command line uses the forms that wait; the driver uses the others. */
  private static <T> T got(CompletableFuture<T> future) {
    try {
      return future.join();
    } catch (CompletionException e) {
      throw e.getCause() instanceof QuireException fault ? fault : e;
    }
  }

  private static Write write(JsonObject request) {
    Write write = Write.of(bytes(request, "key"), bytes(request, "value"));
    if (request.has("ttl_ms")) {
      write = write.timeToLive(Duration.ofMillis(request.get("ttl_ms").getAsLong()));
    }
    OptionalLong version = number(request, "expected_version");
    return version.isPresent() ? write.expectedVersion(version.getAsLong()) : write;
  }

  private static OptionalLong number(JsonObject request, String name) {
    JsonElement number = request.get(name);
    return number == null ? OptionalLong.empty() : OptionalLong.of(number.getAsLong());
  }

  private static ByteString bytes(JsonObject request, String name) {
    return ByteString.copyFrom(Base64.getDecoder().decode(request.get(name).getAsString()));
  }

  private static String base64(ByteString bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }
}
