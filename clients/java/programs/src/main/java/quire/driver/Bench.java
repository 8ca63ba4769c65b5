package quire.driver;

import com.google.protobuf.ByteString;
import com.sun.management.OperatingSystemMXBean;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import picocli.CommandLine.Option;
import quire.client.Purchase;
import quire.client.QuireClient;
import quire.client.wire.BookStoreGrpc;
import quire.client.wire.Bookstore.ItemNumberRequest;

/** Measures what a call costs, through the library and through the generated stub alone. */
final class Bench {
  private static final int BOOK = 53477;
  private static final OperatingSystemMXBean SYSTEM =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  @Option(names = "--in-flight", defaultValue = "1")
  private int inFlight;

  @Option(names = "--seconds", defaultValue = "5")
  private double seconds;

  @Option(names = "--call", defaultValue = "lookup")
  private String call;

  @Option(names = "--bare")
  private boolean isBare;

  private long nanos;
  private boolean isPurchase;

  void run(String address) throws InterruptedException {
    nanos = (long) (seconds * 1e9);
    isPurchase = call.equals("buy");
    if (isBare) {
      bare(address);
    } else {
      library(address);
    }
  }

  private void library(String address) throws InterruptedException {
    try (QuireClient client = QuireClient.connect(address)) {
      measure(
          () -> Objects.requireNonNull(isPurchase ? client.buy(BOOK) : client.lookup(BOOK)),
          done -> {
            var reply = isPurchase ? client.buyAsync(Purchase.of(BOOK)) : client.lookupAsync(BOOK);
            var unused = reply.whenComplete((outcome, fault) -> done.accept(fault));
          });
    }
  }

  /** As gRPC's guide for Java has it: a blocking stub for one call, a future stub for several. */
  private void bare(String address) throws InterruptedException {
    var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    var blocking = BookStoreGrpc.newBlockingStub(channel);
    var future = BookStoreGrpc.newFutureStub(channel);
    measure(
        () ->
            Objects.requireNonNull(
                isPurchase
                    ? blocking.withDeadlineAfter(30, TimeUnit.SECONDS).buy(request())
                    : blocking.withDeadlineAfter(5, TimeUnit.SECONDS).lookup(request())),
        done -> {
          var reply =
              isPurchase
                  ? future.withDeadlineAfter(30, TimeUnit.SECONDS).buy(request())
                  : future.withDeadlineAfter(5, TimeUnit.SECONDS).lookup(request());
          reply.addListener(() -> done.accept(null), Runnable::run);
        });
    channel.shutdownNow();
  }

  private ItemNumberRequest request() {
    ItemNumberRequest.Builder request = ItemNumberRequest.newBuilder().setId(BOOK);
    if (isPurchase) {
      String key = Purchase.of(BOOK).key();
      request.setQuantity(1).setIdempotencyKey(ByteString.copyFromUtf8(key));
    }
    return request.build();
  }

  /** Calls for as long beforehand, so that what is measured is compiled. */
  private void measure(Runnable one, Consumer<Consumer<Throwable>> several)
      throws InterruptedException {
    one.run();
    for (boolean isWarm : new boolean[] {false, true}) {
      long start = System.nanoTime();
      long cpuStart = SYSTEM.getProcessCpuTime();
      long calls = inFlight == 1 ? inTurn(start, one) : atOnce(start, several);
      double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuStart) / 1e9;
      double seconds = (System.nanoTime() - start) / 1e9;
      if (isWarm) {
        System.out.printf(
            Locale.ROOT,
            "{\"calls\":%d,\"cpu_seconds\":%.6f,\"seconds\":%.6f}%n",
            calls,
            cpuSeconds,
            seconds);
      }
    }
  }

  private long inTurn(long start, Runnable call) {
    long calls = 0;
    for (; System.nanoTime() - start < nanos; calls++) {
      call.run();
    }
    return calls;
  }

  /** Each of so many places begins its next call when the one before has ended. */
  private long atOnce(long start, Consumer<Consumer<Throwable>> call) throws InterruptedException {
    LongAdder calls = new LongAdder();
    CountDownLatch places = new CountDownLatch(inFlight);
    Consumer<Throwable> next =
        new Consumer<>() {
          @Override
          public void accept(Throwable fault) {
            if (fault != null) {
              throw new IllegalStateException(fault);
            }
            calls.increment();
            if (System.nanoTime() - start < nanos) {
              call.accept(this);
            } else {
              places.countDown();
            }
          }
        };
    for (int i = 0; i < inFlight; i++) {
      call.accept(next);
    }
    if (!places.await(nanos + TimeUnit.MINUTES.toNanos(1), TimeUnit.NANOSECONDS)) {
      throw new IllegalStateException("calls have failed");
    }
    return calls.sum();
  }
}
