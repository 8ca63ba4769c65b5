package quire.driver;

import com.google.common.util.concurrent.ListenableFuture;
import com.google.protobuf.ByteString;
import com.sun.management.OperatingSystemMXBean;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import quire.cli.Arguments;
import quire.cli.UsageException;
import quire.client.BuyOutcome;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.wire.BookStoreGrpc;
import quire.client.wire.Bookstore.ItemNumberRequest;

/** Measures what a call costs, through the library and through the generated stub alone. */
final class Bench {
  private static final int BOOK = 53477;
  private static final OperatingSystemMXBean SYSTEM =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  private Bench() {}

  static void run(String[] words) throws Exception {
    Arguments arguments =
        Arguments.parse(words, Set.of("bare"), Set.of("call", "in-flight", "seconds"));
    if (arguments.words().size() != 2) {
      throw new UsageException("usage: driver bench ADDRESS --call lookup|buy …");
    }
    String address = arguments.words().get(1);
    boolean isPurchase = arguments.flags().getOrDefault("call", "lookup").equals("buy");
    int inFlight = Integer.parseInt(arguments.flags().getOrDefault("in-flight", "1"));
    long nanos = (long) (Double.parseDouble(arguments.flags().getOrDefault("seconds", "5")) * 1e9);
    if (arguments.flags().containsKey("bare")) {
      bare(address, isPurchase, inFlight, nanos);
    } else {
      library(address, isPurchase, inFlight, nanos);
    }
  }

  private static void library(String address, boolean isPurchase, int inFlight, long nanos)
      throws InterruptedException {
    try (QuireClient client = QuireClient.connect(address)) {
      if (inFlight > 1) {
        inFlight(
            inFlight,
            nanos,
            () ->
                isPurchase
                    ? client.buyAsync(Purchase.of(BOOK)).thenAccept(Bench::check)
                    : client.lookupAsync(BOOK));
      } else if (isPurchase) {
        oneByOne(nanos, () -> check(client.buy(BOOK)));
      } else {
        oneByOne(nanos, () -> client.lookup(BOOK));
      }
    }
  }

  private static void check(BuyOutcome outcome) {
    if (outcome instanceof BuyOutcome.Unknown || outcome instanceof BuyOutcome.NoSuchBook) {
      throw new IllegalStateException(outcome.toString());
    }
  }

  /** As gRPC's guide for Java has it: a blocking stub for one call, a future stub for several. */
  private static void bare(String address, boolean isPurchase, int inFlight, long nanos)
      throws InterruptedException {
    var channel =
        Grpc.newChannelBuilder("dns:///" + address, InsecureChannelCredentials.create()).build();
    if (inFlight > 1) {
      var stub = BookStoreGrpc.newFutureStub(channel);
      inFlight(
          inFlight,
          nanos,
          () -> {
            ListenableFuture<?> reply =
                isPurchase
                    ? stub.withDeadlineAfter(30, TimeUnit.SECONDS).buy(request(true))
                    : stub.withDeadlineAfter(5, TimeUnit.SECONDS).lookup(request(false));
            CompletableFuture<Void> done = new CompletableFuture<>();
            reply.addListener(() -> done.complete(null), Runnable::run);
            return done;
          });
    } else {
      var stub = BookStoreGrpc.newBlockingStub(channel);
      oneByOne(
          nanos,
          () -> {
            if (isPurchase) {
              stub.withDeadlineAfter(30, TimeUnit.SECONDS).buy(request(true));
            } else {
              stub.withDeadlineAfter(5, TimeUnit.SECONDS).lookup(request(false));
            }
          });
    }
    channel.shutdownNow();
  }

  private static ItemNumberRequest request(boolean isPurchase) {
    ItemNumberRequest.Builder request = ItemNumberRequest.newBuilder().setId(BOOK);
    if (isPurchase) {
      String key = Purchase.of(BOOK).key();
      request.setQuantity(1).setIdempotencyKey(ByteString.copyFromUtf8(key));
    }
    return request.build();
  }

  private static void oneByOne(long nanos, Runnable call) throws InterruptedException {
    call.run();
    Clock clock = new Clock(nanos);
    long calls = 0;
    for (; !clock.isOver(); calls++) {
      call.run();
    }
    clock.print(calls);
  }

  /** Each place begins its next call when the one before has ended. */
  private static void inFlight(
      int inFlight, long nanos, Supplier<? extends CompletableFuture<?>> call)
      throws InterruptedException {
    call.get().join();
    Clock clock = new Clock(nanos);
    LongAdder calls = new LongAdder();
    AtomicReference<Throwable> failed = new AtomicReference<>();
    CountDownLatch places = new CountDownLatch(inFlight);
    Runnable place =
        new Runnable() {
          @Override
          public void run() {
            var unused =
                call.get()
                    .whenComplete(
                        (done, fault) -> {
                          calls.increment();
                          if (fault != null) {
                            failed.set(fault);
                          }
                          if (fault != null || clock.isOver()) {
                            places.countDown();
                          } else {
                            run();
                          }
                        });
          }
        };
    for (int i = 0; i < inFlight; i++) {
      place.run();
    }
    places.await();
    if (failed.get() != null) {
      throw new IllegalStateException(failed.get());
    }
    clock.print(calls.sum());
  }

  /** Measures from when it is made. */
  private static final class Clock {
    private final long start = System.nanoTime();
    private final long cpuStart = SYSTEM.getProcessCpuTime();
    private final long nanos;

    Clock(long nanos) {
      this.nanos = nanos;
    }

    boolean isOver() {
      return System.nanoTime() - start >= nanos;
    }

    void print(long calls) {
      double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuStart) / 1e9;
      double seconds = (System.nanoTime() - start) / 1e9;
      System.out.printf(
          Locale.ROOT,
          "{\"calls\":%d,\"cpu_seconds\":%.6f,\"seconds\":%.6f}%n",
          calls,
          cpuSeconds,
          seconds);
    }
  }
}
