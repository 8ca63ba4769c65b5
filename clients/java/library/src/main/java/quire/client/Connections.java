package quire.client;

import io.grpc.CallCredentials;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import quire.client.wire.BookStoreGrpc;
import quire.client.wire.Bookstore.HelloReply;
import quire.client.wire.Bookstore.HelloRequest;

/**
 * A connection to each address, used in turn. gRPC calls one ready once the server has sent its
 * settings. Must not know what is sent.
 */
final class Connections implements AutoCloseable {
  private static final long KEEPALIVE_SECONDS = 10;

  /** A value of 1 GiB, the largest that a server can be set to keep, with what is around it. */
  private static final int MESSAGE_BYTES_MAX = (1 << 30) + (1 << 20);

  /** A connection that has been silent for longer is given up when an attempt is over. */
  private static final long SILENT_MAX_NANOS = TimeUnit.SECONDS.toNanos(1);

  /** Why a connection was not waited for any longer. */
  static final Status LATE = Status.UNAVAILABLE.withDescription("no server answered in time");

  private final String name;
  private final ManagedChannel[] channels;
  private final AtomicInteger turn = new AtomicInteger();

  /** Shared by all who wait: a ready connection, or the status of one that failed if all have. */
  private CompletableFuture<Channel> connecting;

  private long connectingSince;
  private volatile boolean closed;

  Connections(List<Address> addresses, ChannelCredentials credentials) {
    name = addresses.stream().map(Address::toString).collect(Collectors.joining(","));
    channels = addresses.stream().map(at -> open(at, credentials)).toArray(ManagedChannel[]::new);
  }

  private static ManagedChannel open(Address at, ChannelCredentials credentials) {
    String host = at.host().replaceAll("[\\[\\]]", "");
    return Grpc.newChannelBuilderForAddress(host, at.port(), credentials)
        .disableRetry()
        .disableServiceConfigLookUp()
        .keepAliveTime(KEEPALIVE_SECONDS, TimeUnit.SECONDS)
        .keepAliveTimeout(KEEPALIVE_SECONDS, TimeUnit.SECONDS)
        .maxInboundMessageSize(MESSAGE_BYTES_MAX)
        .userAgent("quire-client-java/0.1.0")
        .build();
  }

  /** The addresses. */
  String name() {
    return name;
  }

  /** The next connection that is ready; null if none is. Those that are idle begin to connect. */
  Channel next() {
    int from = channels.length == 1 ? 0 : turn.getAndIncrement();
    for (int i = 0; i < channels.length; i++) {
      ManagedChannel channel = channels[Math.floorMod(from + i, channels.length)];
      if (channel.getState(true) == ConnectivityState.READY) {
        return channel;
      }
    }
    return null;
  }

  /**
   * As {@link #next}, but waits.
   *
   * @throws StatusRuntimeException if no connection can be had, or not in time; with the cause
   */
  Channel await(long nanos) throws InterruptedException {
    if (Thread.interrupted()) {
      throw new InterruptedException();
    }
    Channel ready = next();
    if (ready != null) {
      return ready;
    }
    try {
      return connect().get(nanos, TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      giveUp();
      throw LATE.asRuntimeException();
    } catch (ExecutionException e) {
      throw Status.fromThrowable(e).asRuntimeException();
    }
  }

  /** As {@link #await}, without a thread that waits. */
  CompletableFuture<Channel> awaitAsync(long nanos) {
    CompletableFuture<Channel> wait = connect().copy();
    return wait.orTimeout(nanos, TimeUnit.NANOSECONDS)
        .exceptionallyCompose(
            wrong -> {
              if (wrong instanceof TimeoutException) {
                giveUp();
                return CompletableFuture.failedFuture(LATE.asRuntimeException());
              }
              return CompletableFuture.failedFuture(wrong);
            });
  }

  @Override
  public void close() {
    closed = true;
    for (ManagedChannel channel : channels) {
      channel.shutdownNow();
    }
  }

  /** Connects anew where that failed before; joins those who wait already. */
  private synchronized CompletableFuture<Channel> connect() {
    if (closed) {
      throw new IllegalStateException("the client is closed");
    }
    if (connecting == null || connecting.isDone()) {
      connecting = new CompletableFuture<>();
      connectingSince = System.nanoTime();
      AtomicInteger hopes = new AtomicInteger(channels.length);
      for (ManagedChannel channel : channels) {
        if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
          // It would wait for its own time to try again, a second or more.
          channel.enterIdle();
        }
        follow(channel, connecting, hopes);
      }
    }
    return connecting;
  }

  private static void follow(
      ManagedChannel channel, CompletableFuture<Channel> ready, AtomicInteger hopes) {
    ConnectivityState state = channel.getState(true);
    switch (state) {
      case READY -> ready.complete(channel);
      case TRANSIENT_FAILURE, SHUTDOWN -> {
        if (hopes.decrementAndGet() == 0) {
          fail(channel, ready);
        }
      }
      default -> channel.notifyWhenStateChanged(state, () -> follow(channel, ready, hopes));
    }
  }

  /**
   * Fails with the cause of a channel's failure, the status with which gRPC ends a call on it at
   * once. On a channel that is ready again the call's credentials keep it from being sent.
   */
  private static void fail(ManagedChannel channel, CompletableFuture<Channel> ready) {
    CallCredentials none =
        new CallCredentials() {
          @Override
          public void applyRequestMetadata(RequestInfo info, Executor on, MetadataApplier to) {
            ready.complete(channel);
            to.fail(Status.CANCELLED);
          }
        };
    ClientCall<HelloRequest, HelloReply> call =
        channel.newCall(
            BookStoreGrpc.getHelloMethod(), CallOptions.DEFAULT.withCallCredentials(none));
    call.start(
        new ClientCall.Listener<>() {
          @Override
          public void onClose(Status status, Metadata trailers) {
            // The status of a peer that does not speak HTTP/2 is INTERNAL.
            Status why = Status.UNAVAILABLE.withDescription(status.getDescription());
            ready.completeExceptionally(why.withCause(status.getCause()).asRuntimeException());
          }
        },
        new Metadata());
  }

  /** Lets the next attempt have new connections in place of those on which no server speaks. */
  private synchronized void giveUp() {
    if (System.nanoTime() - connectingSince < SILENT_MAX_NANOS) {
      return;
    }
    connecting = null;
    connectingSince = System.nanoTime();
    for (ManagedChannel channel : channels) {
      if (channel.getState(false) == ConnectivityState.CONNECTING) {
        channel.enterIdle();
      }
    }
  }
}
