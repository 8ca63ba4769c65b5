package quire.client;

import static io.grpc.Status.Code.ABORTED;
import static io.grpc.Status.Code.ALREADY_EXISTS;
import static io.grpc.Status.Code.NOT_FOUND;
import static quire.client.Attempts.Kind.KEYED;
import static quire.client.Attempts.Kind.READ;
import static quire.client.Attempts.Kind.WRITE;

import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import quire.client.Calls.Call;
import quire.client.wire.BookStoreGrpc;
import quire.client.wire.Bookstore.BookInfoReply;
import quire.client.wire.Bookstore.BookTopicRequest;
import quire.client.wire.Bookstore.BuyBookReply;
import quire.client.wire.Bookstore.HelloReply;
import quire.client.wire.Bookstore.HelloRequest;
import quire.client.wire.Bookstore.ItemNumberRequest;
import quire.client.wire.Bookstore.ListTopicsRequest;
import quire.client.wire.Bookstore.ReceiptReply;
import quire.client.wire.Bookstore.ReceiptRequest;
import quire.client.wire.Bookstore.ReservationReply;
import quire.client.wire.Bookstore.ReservationRequest;
import quire.client.wire.Bookstore.ReserveRequest;
import quire.client.wire.KeyRangeServiceGrpc;
import quire.client.wire.KeyValueServiceGrpc;
import quire.client.wire.Kv;

/**
 * A client of one or several Quire servers; safe to use from any thread. It connects with the first
 * call and keeps its connections until it is closed.
 *
 * <p>Each call has a form that waits and one, named {@code …Async}, that does not. Both throw, or
 * complete with, a {@link QuireException} if the server refuses or does not answer. Interrupting a
 * thread that waits, or cancelling a future, ends the call; a purchase that was sent is then in
 * doubt, with the outcome {@link BuyOutcome.Unknown}.
 */
public final class QuireClient implements AutoCloseable {
  private static final int PAGE_SIZE = 1000;
  private static final Duration TIMEOUT_MAX = Duration.ofDays(365);
  private static final int RETRIES = 3;

  private final Calls calls;

  private QuireClient(Calls calls) {
    this.calls = calls;
  }

  /**
   * A client of the servers at these addresses: {@code HOST:PORT}, a host, or {@code :PORT}, with
   * {@code https://} before it for TLS.
   */
  public static QuireClient connect(String... addresses) {
    return builder(addresses).build();
  }

  /** Begins a client with settings of its own. */
  public static QuireClientBuilder builder(String... addresses) {
    return new QuireClientBuilder(addresses);
  }

  static QuireClient of(Connections connections, Optional<String> token) {
    return new QuireClient(new Calls(connections, bearing(token), null, RETRIES));
  }

  /**
   * The same client, on the same connections, with another longest time for a call, its retries and
   * pauses included. Without it, a read or a write has 5 s, what has a key 30 s, and a watch as
   * long as it lasts.
   */
  public QuireClient withTimeout(Duration timeout) {
    if (timeout.compareTo(Duration.ofMillis(1)) < 0 || timeout.compareTo(TIMEOUT_MAX) > 0) {
      throw new IllegalArgumentException(
          "timeout is " + timeout + "; it must be from 1 ms to 365 days");
    }
    return new QuireClient(calls.with(calls.options(), timeout, calls.retries()));
  }

  /**
   * The same client, on the same connections, that sends a call again at most so often; 3 times
   * without it. A purchase in doubt is sent again until its time is over, unless this is 0.
   */
  public QuireClient withRetries(int retries) {
    if (retries < 0) {
      throw new IllegalArgumentException("retries is " + retries + "; it must be 0 or more");
    }
    return new QuireClient(calls.with(calls.options(), calls.timeout(), retries));
  }

  /**
   * The same client, on the same connections, whose calls belong to a trace.
   *
   * @param traceparent the header of W3C's Trace Context; left out unless it is 1 to 512 bytes of
   *     printable ASCII without blanks around it
   * @param tracestate the header beside it, or an empty text; goes with a {@code traceparent} only,
   *     and is left out for the same reasons
   */
  public QuireClient withTrace(String traceparent, String tracestate) {
    CallOptions traced = Trace.with(calls.options(), traceparent, tracestate);
    return new QuireClient(calls.with(traced, calls.timeout(), calls.retries()));
  }

  /** The operator's calls, on the same connections. */
  public QuireOperator operator(String token) {
    CallOptions bearing = calls.options().withCallCredentials(new Bearer(token));
    return new QuireOperator(calls.with(bearing, calls.timeout(), calls.retries()));
  }

  /** Ends the connections, and the calls in flight with them. */
  @Override
  public void close() {
    calls.connections().close();
  }

  /** Sends a name; returns the server's greeting. */
  public String ping(String name) {
    return calls.run(pingCall(name));
  }

  /** As {@link #ping}. */
  public CompletableFuture<String> pingAsync(String name) {
    return calls.start(pingCall(name));
  }

  /** The books of a topic, which is matched exactly, in the order of their ids. */
  public Paged<Book> search(String topic) {
    return search(topic, PAGE_SIZE);
  }

  /** As {@link #search(String)}, with the most books of a page. */
  public Paged<Book> search(String topic, int pageSize) {
    if (pageSize < 1) {
      throw new IllegalArgumentException("pageSize is " + pageSize + "; it must be 1 or more");
    }
    return new Paged<>(() -> searchPage(topic, pageSize, ""));
  }

  /** The topics in the order of their names. */
  public Paged<Topic> topics() {
    return topicsNear("");
  }

  /** The topics whose names are nearest to a text, best first. */
  public Paged<Topic> topicsNear(String text) {
    return new Paged<>(() -> topicsPage(text, ""));
  }

  /** The book with an id, if there is one. */
  public Lookup lookup(int id) {
    return calls.run(lookupCall(id));
  }

  /** As {@link #lookup}. */
  public CompletableFuture<Lookup> lookupAsync(int id) {
    return calls.start(lookupCall(id));
  }

  /** Buys one copy of a book, with a random key. */
  public BuyOutcome buy(int id) {
    return buy(Purchase.of(id));
  }

  /**
   * Buys what the purchase says, once: while it is not known if the server has done it, it is sent
   * again with the same key until the time is over. What is then still in doubt is {@link
   * BuyOutcome.Unknown}.
   */
  public BuyOutcome buy(Purchase purchase) {
    return calls.run(buyCall(purchase));
  }

  /** As {@link #buy(Purchase)}. */
  public CompletableFuture<BuyOutcome> buyAsync(Purchase purchase) {
    return calls.start(buyCall(purchase));
  }

  /** The receipt of the purchase with a number that was made with a key, if there is one. */
  public ReceiptLookup receipt(long number, String key) {
    return calls.run(receiptCall(number, key));
  }

  /** As {@link #receipt}. */
  public CompletableFuture<ReceiptLookup> receiptAsync(long number, String key) {
    return calls.start(receiptCall(number, key));
  }

  /**
   * Holds the copies of the purchase for whole seconds, the server's default if absent. This,
   * {@link #confirm} and {@link #release} are sent again as a purchase is, and each does its part
   * once.
   */
  public Reservation reserve(Purchase purchase, Optional<Duration> time) {
    return calls.run(reserveCall(purchase, time));
  }

  /** As {@link #reserve}. */
  public CompletableFuture<Reservation> reserveAsync(Purchase purchase, Optional<Duration> time) {
    return calls.start(reserveCall(purchase, time));
  }

  /** Buys what the reservation with a key holds, at the price of now. */
  public Reservation confirm(String key) {
    return calls.run(settleCall(BookStoreGrpc.getConfirmMethod(), key));
  }

  /** As {@link #confirm}. */
  public CompletableFuture<Reservation> confirmAsync(String key) {
    return calls.start(settleCall(BookStoreGrpc.getConfirmMethod(), key));
  }

  /** Gives back what the reservation with a key holds. */
  public Reservation release(String key) {
    return calls.run(settleCall(BookStoreGrpc.getReleaseMethod(), key));
  }

  /** As {@link #release}. */
  public CompletableFuture<Reservation> releaseAsync(String key) {
    return calls.start(settleCall(BookStoreGrpc.getReleaseMethod(), key));
  }

  /** Writes an entry if its key has none. */
  public CreateOutcome create(Write write) {
    return calls.run(createCall(write));
  }

  /** As {@link #create}. */
  public CompletableFuture<CreateOutcome> createAsync(Write write) {
    return calls.start(createCall(write));
  }

  /** Writes an entry, whether its key has one or not; returns its version. */
  public long put(Write write) {
    return calls.run(putCall(write));
  }

  /** As {@link #put}. */
  public CompletableFuture<Long> putAsync(Write write) {
    return calls.start(putCall(write));
  }

  /** The entry of a key, if it has one. */
  public Optional<Entry> get(ByteString key) {
    return calls.run(getCall(key));
  }

  /** As {@link #get}. */
  public CompletableFuture<Optional<Entry>> getAsync(ByteString key) {
    return calls.start(getCall(key));
  }

  /** Another name of {@link #get}. */
  public Optional<Entry> retrieve(ByteString key) {
    return get(key);
  }

  /** Another name of {@link #getAsync}. */
  public CompletableFuture<Optional<Entry>> retrieveAsync(ByteString key) {
    return getAsync(key);
  }

  /** Writes an entry if its key has one, of the expected version if the write names one. */
  public UpdateOutcome update(Write write) {
    return calls.run(updateCall(write));
  }

  /** As {@link #update}. */
  public CompletableFuture<UpdateOutcome> updateAsync(Write write) {
    return calls.start(updateCall(write));
  }

  /** Removes the entry of a key, of the expected version if one is given. */
  public DeleteOutcome delete(ByteString key, OptionalLong expectedVersion) {
    return calls.run(deleteCall(key, expectedVersion));
  }

  /** As {@link #delete}. */
  public CompletableFuture<DeleteOutcome> deleteAsync(
      ByteString key, OptionalLong expectedVersion) {
    return calls.start(deleteCall(key, expectedVersion));
  }

  /** The entries whose keys have a prefix, in the order of their keys. */
  public Paged<Entry> scan(ByteString prefix) {
    return new Paged<>(() -> scanPage(prefix, false, null));
  }

  /** As {@link #scan}, with empty values. */
  public Paged<Entry> scanKeys(ByteString prefix) {
    return new Paged<>(() -> scanPage(prefix, true, null));
  }

  /**
   * Every change to keys with a prefix, from {@link WatchEvent.Started}, the first event, on. A
   * watcher that does not keep up is refused; it should scan and watch again.
   */
  public Subscription<WatchEvent> watch(ByteString prefix) {
    var request = Kv.WatchRequest.newBuilder().setPrefix(prefix).build();
    return calls.subscribe(KeyRangeServiceGrpc.getWatchMethod(), request, QuireClient::event, true);
  }

  private static CallOptions bearing(Optional<String> token) {
    return token
        .map(Bearer::new)
        .map(CallOptions.DEFAULT::withCallCredentials)
        .orElse(CallOptions.DEFAULT);
  }

  private static Call<HelloRequest, HelloReply, String> pingCall(String name) {
    HelloRequest request = HelloRequest.newBuilder().setName(name).build();
    return new Call<>(READ, BookStoreGrpc.getHelloMethod(), request, HelloReply::getHelloMessage);
  }

  private Page<Book> searchPage(String topic, int pageSize, String token) {
    BookTopicRequest.Builder request = BookTopicRequest.newBuilder().setTopic(topic);
    request.setPageSize(pageSize).setPageToken(token);
    var reply =
        calls.run(new Call<>(READ, BookStoreGrpc.getSearchMethod(), request.build(), it -> it));
    return Page.of(
        reply.getBooksList(),
        Book::of,
        reply.getMessage(),
        reply.getNextPageToken(),
        next -> searchPage(topic, pageSize, next));
  }

  private Page<Topic> topicsPage(String near, String token) {
    var request = ListTopicsRequest.newBuilder().setNear(near).setPageToken(token).build();
    var reply = calls.run(new Call<>(READ, BookStoreGrpc.getListTopicsMethod(), request, it -> it));
    return Page.of(
        reply.getTopicsList(),
        topic -> new Topic(topic.getName(), topic.getBooks()),
        "",
        reply.getNextPageToken(),
        next -> topicsPage(near, next));
  }

  private static Call<ItemNumberRequest, BookInfoReply, Lookup> lookupCall(int id) {
    Purchase.checkId(id);
    ItemNumberRequest request = ItemNumberRequest.newBuilder().setId(id).build();
    return new Call<>(
        READ,
        BookStoreGrpc.getLookupMethod(),
        request,
        reply -> {
          var book =
              reply.hasBook() ? Optional.of(Book.of(reply.getBook())) : Optional.<Book>empty();
          return new Lookup(book, reply.getMessage());
        });
  }

  private static Call<ItemNumberRequest, BuyBookReply, BuyOutcome> buyCall(Purchase purchase) {
    String key = purchase.key();
    ItemNumberRequest request =
        ItemNumberRequest.newBuilder()
            .setId(purchase.id())
            .setQuantity(purchase.quantity())
            .setIdempotencyKey(ByteString.copyFromUtf8(key))
            .build();
    return keyed(
        BookStoreGrpc.getBuyMethod(),
        request,
        reply -> outcome(reply, key),
        fault -> new BuyOutcome.Unknown(key, fault.getMessage(), fault.code()));
  }

  /** A call that its key makes happen once. */
  private static <Q, R, T> Call<Q, R, T> keyed(
      MethodDescriptor<Q, R> method,
      Q request,
      Function<R, T> read,
      Function<QuireException, T> unknown) {
    return new Call<>(
        KEYED,
        method,
        request,
        read,
        fault -> fault instanceof OutcomeUnknownException ? unknown.apply(fault) : null);
  }

  private static Call<ReserveRequest, ReservationReply, Reservation> reserveCall(
      Purchase purchase, Optional<Duration> time) {
    ReserveRequest.Builder request = ReserveRequest.newBuilder().setId(purchase.id());
    request.setQuantity(purchase.quantity());
    request.setIdempotencyKey(ByteString.copyFromUtf8(purchase.key()));
    time.ifPresent(it -> request.setSeconds(seconds(it)));
    return reservation(BookStoreGrpc.getReserveMethod(), request.build(), purchase.key());
  }

  private static int seconds(Duration time) {
    long seconds = time.toSeconds();
    if (seconds < 1 || seconds > Integer.MAX_VALUE || !time.equals(Duration.ofSeconds(seconds))) {
      throw new IllegalArgumentException("time is " + time + "; it must be whole seconds, from 1");
    }
    return (int) seconds;
  }

  private static Call<ReservationRequest, ReservationReply, Reservation> settleCall(
      MethodDescriptor<ReservationRequest, ReservationReply> method, String key) {
    Purchase.checkKey(key);
    var request = ReservationRequest.newBuilder().setIdempotencyKey(ByteString.copyFromUtf8(key));
    return reservation(method, request.build(), key);
  }

  private static <Q> Call<Q, ReservationReply, Reservation> reservation(
      MethodDescriptor<Q, ReservationReply> method, Q request, String key) {
    return keyed(
        method,
        request,
        reply -> Reservation.of(reply, key),
        fault -> Reservation.unknown(fault, key));
  }

  private static Call<ReceiptRequest, ReceiptReply, ReceiptLookup> receiptCall(
      long number, String key) {
    if (number < 1) {
      throw new IllegalArgumentException(
          "number is " + number + "; it must be a whole number from 1");
    }
    Purchase.checkKey(key);
    ReceiptRequest.Builder request = ReceiptRequest.newBuilder().setNumber(number);
    request.setIdempotencyKey(ByteString.copyFromUtf8(key));
    return new Call<>(
        READ,
        BookStoreGrpc.getReceiptMethod(),
        request.build(),
        reply -> {
          var receipt = new Receipt(reply.getReceipt(), reply.getLogKey());
          return new ReceiptLookup(
              Optional.of(receipt).filter(it -> reply.getSuccess()), reply.getMessage());
        });
  }

  private static BuyOutcome outcome(BuyBookReply reply, String key) {
    String message = reply.getMessage();
    boolean replayed = reply.getReplayed();
    OptionalInt left =
        reply.hasStockLeft() ? OptionalInt.of(reply.getStockLeft()) : OptionalInt.empty();
    // Every server reports if it was bought; later ones also why not.
    if (reply.getSuccess()) {
      return new BuyOutcome.Bought(key, message, replayed, reply.getPurchaseNumber(), left);
    }
    return switch (reply.getOutcome()) {
      case BUY_OUTCOME_SOLD_OUT -> new BuyOutcome.SoldOut(key, message, replayed, left);
      case BUY_OUTCOME_TOO_FEW -> new BuyOutcome.TooFew(key, message, replayed, left);
      case BUY_OUTCOME_NO_SUCH_BOOK -> new BuyOutcome.NoSuchBook(key, message, replayed, left);
      default -> new BuyOutcome.NotBought(key, message, replayed, left);
    };
  }

  private static Call<Kv.CreateRequest, Kv.CreateResponse, CreateOutcome> createCall(Write write) {
    Kv.CreateRequest.Builder request = Kv.CreateRequest.newBuilder().setKey(write.key());
    request.setValue(write.value()).setTimeToLiveMs(anyVersion(write).timeToLiveMs());
    return new Call<>(
        WRITE,
        KeyValueServiceGrpc.getCreateMethod(),
        request.setWantDetails(true).build(),
        reply -> new CreateOutcome.Created(reply.getVersion()),
        fault -> fault.code() == ALREADY_EXISTS ? new CreateOutcome.Exists() : null);
  }

  private static Call<Kv.PutRequest, Kv.PutResponse, Long> putCall(Write write) {
    Kv.PutRequest.Builder request = Kv.PutRequest.newBuilder().setKey(write.key());
    request.setValue(write.value()).setTimeToLiveMs(anyVersion(write).timeToLiveMs());
    var method = KeyRangeServiceGrpc.getPutMethod();
    return new Call<>(WRITE, method, request.build(), Kv.PutResponse::getVersion);
  }

  private static Write anyVersion(Write write) {
    if (write.expectedVersion().isPresent()) {
      throw new IllegalArgumentException("expectedVersion is for an update; leave it out");
    }
    return write;
  }

  private static Call<Kv.RetrieveRequest, Kv.RetrieveResponse, Optional<Entry>> getCall(
      ByteString key) {
    return new Call<>(
        READ,
        KeyValueServiceGrpc.getRetrieveMethod(),
        Kv.RetrieveRequest.newBuilder().setKey(key).setWantDetails(true).build(),
        reply -> Optional.of(Entry.of(key, reply)),
        fault -> fault.code() == NOT_FOUND ? Optional.empty() : null);
  }

  private static Call<Kv.UpdateRequest, Kv.UpdateResponse, UpdateOutcome> updateCall(Write write) {
    Kv.UpdateRequest.Builder request = Kv.UpdateRequest.newBuilder().setKey(write.key());
    request.setValue(write.value()).setTimeToLiveMs(write.timeToLiveMs()).setWantDetails(true);
    write.expectedVersion().ifPresent(request::setExpectedVersion);
    return new Call<>(
        WRITE,
        KeyValueServiceGrpc.getUpdateMethod(),
        request.build(),
        reply -> new UpdateOutcome.Updated(reply.getVersion()),
        fault ->
            switch (fault.code()) {
              case NOT_FOUND -> new UpdateOutcome.NoSuchKey();
              case ABORTED -> new UpdateOutcome.AnotherVersion();
              default -> null;
            });
  }

  private static Call<Kv.DeleteRequest, Kv.DeleteResponse, DeleteOutcome> deleteCall(
      ByteString key, OptionalLong expectedVersion) {
    Kv.DeleteRequest.Builder request = Kv.DeleteRequest.newBuilder().setKey(key);
    expectedVersion.ifPresent(request::setExpectedVersion);
    return new Call<>(
        WRITE,
        KeyValueServiceGrpc.getDeleteMethod(),
        request.setWantDetails(true).build(),
        reply -> new DeleteOutcome.Deleted(reply.getDeleted()),
        fault -> fault.code() == ABORTED ? new DeleteOutcome.AnotherVersion() : null);
  }

  /** {@code after} is the last key of the page before; null for the first page. */
  private Page<Entry> scanPage(ByteString prefix, boolean keysOnly, ByteString after) {
    Kv.ScanRequest.Builder request =
        Kv.ScanRequest.newBuilder().setPrefix(prefix).setKeysOnly(keysOnly);
    if (after != null) {
      request.setStartAfter(after);
    }
    var reply =
        calls.run(new Call<>(READ, KeyRangeServiceGrpc.getScanMethod(), request.build(), it -> it));
    return new Page<>(
        reply.getEntriesList().stream().map(Entry::of).toList(),
        "",
        reply.hasNextStartAfter()
            ? () -> scanPage(prefix, keysOnly, reply.getNextStartAfter())
            : null);
  }

  private static WatchEvent event(Kv.WatchEvent event) {
    ByteString key = event.getKey();
    long version = event.getVersion();
    return switch (event.getKind()) {
      case WATCH_EVENT_KIND_STARTED -> new WatchEvent.Started();
      case WATCH_EVENT_KIND_PUT ->
          new WatchEvent.Put(key, event.getValue(), version, event.getValueLeftOut());
      case WATCH_EVENT_KIND_DELETED -> new WatchEvent.Deleted(key, version);
      case WATCH_EVENT_KIND_EXPIRED -> new WatchEvent.Expired(key, version);
      default -> new WatchEvent.Other(key, version);
    };
  }
}
