package quire.driver;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
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
import java.util.Base64;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.stream.Stream;
import quire.cli.Arguments;
import quire.cli.Target;
import quire.cli.UsageException;
import quire.client.Book;
import quire.client.BuyOutcome;
import quire.client.CreateOutcome;
import quire.client.DeleteOutcome;
import quire.client.Entry;
import quire.client.LogEntry;
import quire.client.OutcomeUnknownException;
import quire.client.PriceChange;
import quire.client.Purchase;
import quire.client.QuireAdmin;
import quire.client.QuireClient;
import quire.client.QuireException;
import quire.client.RefusedException;
import quire.client.Topic;
import quire.client.UpdateOutcome;
import quire.client.WatchEvent;
import quire.client.Write;

/** Calls the library as lines of JSON on standard input say, and answers in lines of JSON. */
public final class Driver {
  private static final int AT_ONCE = 64;
  private static final Set<String> FLAGS =
      Set.of("token", "ca", "certificate", "key-file", "retries");

  private final QuireClient client;
  private final String token;
  private final PrintStream out =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);

  private Driver(QuireClient client, String token) {
    this.client = client;
    this.token = token;
  }

  public static void main(String[] words) throws Exception {
    if (words.length > 0 && words[0].equals("bench")) {
      Bench.run(words);
      return;
    }
    try {
      Arguments arguments = Arguments.parse(words, Set.of(), FLAGS);
      if (arguments.words().size() != 1) {
        throw new UsageException("usage: driver ADDRESS[,ADDRESS…] [FLAGS]");
      }
      Target target = Target.parse(arguments.words().get(0));
      try (QuireClient client = arguments.client(target, Map.of())) {
        new Driver(client, arguments.flags().get("token")).serve();
      }
    } catch (UsageException e) {
      System.err.println("driver: " + e.getMessage());
      System.exit(2);
    }
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
    JsonObject answer = new JsonObject();
    try {
      QuireClient timed =
          request.has("timeout_ms")
              ? client.withTimeout(Duration.ofMillis(request.get("timeout_ms").getAsLong()))
              : client;
      call(timed, request, answer);
      return answer;
    } catch (IllegalArgumentException e) {
      return fault("argument", e);
    } catch (QuireException e) {
      boolean isRefused = e instanceof RefusedException;
      boolean isUnknown = e instanceof OutcomeUnknownException;
      JsonObject fault =
          fault(isRefused ? "refused" : isUnknown ? "outcome_unknown" : "unreachable", e);
      fault.addProperty("code", e.code().name());
      return fault;
    }
  }

  private static JsonObject fault(String kind, RuntimeException cause) {
    JsonObject fault = new JsonObject();
    fault.addProperty("error", kind);
    fault.addProperty("message", cause.getMessage());
    return fault;
  }

  private void call(QuireClient client, JsonObject request, JsonObject answer) {
    switch (request.get("call").getAsString()) {
      case "ping" -> answer.addProperty("message", got(client.pingAsync("driver")));
      case "search" -> {
        String topic = request.get("topic").getAsString();
        JsonElement size = request.get("page_size");
        var books = size == null ? client.search(topic) : client.search(topic, size.getAsInt());
        answer.add("ids", array(books.stream().map(Book::id)));
      }
      case "topics" -> {
        JsonElement near = request.get("near");
        var topics = near == null ? client.topics() : client.topicsNear(near.getAsString());
        answer.add("names", array(topics.stream().map(Topic::name)));
      }
      case "lookup" -> {
        var book = got(client.lookupAsync(request.get("id").getAsInt())).book();
        answer.add("book", book.<JsonElement>map(Driver::json).orElse(JsonNull.INSTANCE));
      }
      case "buy" -> buy(client, request, answer);
      case "create" -> {
        if (got(client.createAsync(write(request))) instanceof CreateOutcome.Created created) {
          answer.addProperty("version", created.version());
        } else {
          answer.addProperty("outcome", "exists");
        }
      }
      case "put" -> answer.addProperty("version", got(client.putAsync(write(request))));
      case "update" -> {
        UpdateOutcome outcome = got(client.updateAsync(write(request)));
        if (outcome instanceof UpdateOutcome.Updated updated) {
          answer.addProperty("version", updated.version());
        } else {
          boolean isAbsent = outcome instanceof UpdateOutcome.NoSuchKey;
          answer.addProperty("outcome", isAbsent ? "no_such_key" : "another_version");
        }
      }
      case "retrieve" ->
          got(client.retrieveAsync(bytes(request, "key")))
              .ifPresentOrElse(
                  entry -> {
                    answer.addProperty("value", base64(entry.value()));
                    answer.addProperty("version", entry.version());
                    entry.timeLeft().ifPresent(it -> answer.addProperty("ttl_ms", it.toMillis()));
                  },
                  () -> answer.addProperty("outcome", "no_such_key"));
      case "delete" -> {
        var outcome =
            got(client.deleteAsync(bytes(request, "key"), number(request, "expected_version")));
        if (outcome instanceof DeleteOutcome.Deleted deleted) {
          answer.addProperty("deleted", deleted.existed());
        } else {
          answer.addProperty("outcome", "another_version");
        }
      }
      case "scan" -> {
        boolean keysOnly = request.has("keys_only") && request.get("keys_only").getAsBoolean();
        ByteString prefix = bytes(request, "prefix");
        var entries = (keysOnly ? client.scanKeys(prefix) : client.scan(prefix)).stream().toList();
        answer.add("keys", array(entries.stream().map(Entry::key).map(Driver::base64)));
        if (!keysOnly) {
          answer.add("values", array(entries.stream().map(Entry::value).map(Driver::base64)));
        }
      }
      case "watch" -> watch(client, request, answer);
      case "list" -> answer.add("ids", array(admin(client).list().stream().map(Book::id)));
      case "restock" -> {
        JsonElement amount = request.get("amount");
        answer.addProperty(
            "raised",
            got(
                admin(client)
                    .restockAsync(
                        amount == null ? OptionalInt.empty() : OptionalInt.of(amount.getAsInt()))));
      }
      case "update_price" -> {
        int id = request.get("id").getAsInt();
        var change = got(admin(client).updatePriceAsync(id, request.get("cents").getAsLong()));
        answer.addProperty("before", change.map(PriceChange::beforeCents).orElse(null));
        answer.addProperty("after", change.map(PriceChange::afterCents).orElse(null));
      }
      case "log" -> {
        var entries = admin(client).log().stream().limit(request.get("limit").getAsLong());
        answer.add("numbers", array(entries.map(LogEntry::number)));
      }
      case "tail_log" -> {
        try (var tail = admin(client).tailLog(number(request, "after"))) {
          JsonArray numbers = new JsonArray();
          for (int left = request.get("entries").getAsInt(); left > 0; left--) {
            numbers.add(tail.next().number());
          }
          answer.add("numbers", numbers);
        }
      }
      default -> throw new IllegalArgumentException("there is no call " + request.get("call"));
    }
  }

  private static void buy(QuireClient client, JsonObject request, JsonObject answer) {
    Purchase purchase = Purchase.of(request.get("id").getAsInt());
    if (request.has("quantity")) {
      purchase = purchase.quantity(request.get("quantity").getAsInt());
    }
    if (request.has("key")) {
      purchase = purchase.key(request.get("key").getAsString());
    }
    BuyOutcome outcome = got(client.buyAsync(purchase));
    // NoSuchBook is no_such_book.
    String name = outcome.getClass().getSimpleName().replaceAll("(?<=.)([A-Z])", "_$1");
    answer.addProperty("outcome", name.toLowerCase(Locale.ROOT));
    answer.addProperty("key", outcome.key());
    answer.addProperty("replayed", outcome.replayed());
    outcome.stockLeft().ifPresent(left -> answer.addProperty("stock_left", left));
    if (outcome instanceof BuyOutcome.Bought) {
      answer.addProperty("number", outcome.number());
    }
  }

  private void watch(QuireClient client, JsonObject request, JsonObject answer) {
    try (var events = client.watch(bytes(request, "prefix"))) {
      events.next();
      JsonObject started = new JsonObject();
      started.addProperty("started", true);
      reply(request, started);
      JsonArray kinds = new JsonArray();
      JsonArray keys = new JsonArray();
      for (int left = request.get("events").getAsInt(); left > 0; left--) {
        WatchEvent event = events.next();
        kinds.add(event.getClass().getSimpleName().toLowerCase(Locale.ROOT));
        if (event instanceof WatchEvent.Put put) {
          keys.add(base64(put.key()));
        } else if (event instanceof WatchEvent.Deleted deleted) {
          keys.add(base64(deleted.key()));
        } else if (event instanceof WatchEvent.Expired expired) {
          keys.add(base64(expired.key()));
        }
      }
      answer.add("kinds", kinds);
      answer.add("keys", keys);
    }
  }

  private QuireAdmin admin(QuireClient client) {
    if (token == null) {
      throw new IllegalArgumentException("an operator's call needs --token");
    }
    return client.admin(token);
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

  private static JsonObject json(Book book) {
    JsonObject json = new JsonObject();
    json.addProperty("id", book.id());
    json.addProperty("price_cents", book.priceCents());
    json.addProperty("stock", book.stock());
    json.addProperty("title", book.title());
    json.addProperty("topic", book.topic());
    return json;
  }

  private static JsonArray array(Stream<?> items) {
    JsonArray array = new JsonArray();
    items.forEach(
        item -> {
          if (item instanceof Number number) {
            array.add(number);
          } else {
            array.add((String) item);
          }
        });
    return array;
  }
}
