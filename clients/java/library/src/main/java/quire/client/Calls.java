package quire.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import quire.client.Attempts.Kind;
import quire.client.Attempts.Reach;

/**
 * Sends calls until they are answered or their time is over.
 *
 * @param timeout the caller's; null for that of the kind of call
 */
record Calls(Connections connections, CallOptions options, Duration timeout, int retries) {
  private static final Status NO_ANSWER = Status.INTERNAL.withDescription("there was no answer");

  /**
   * A call and how its end is read.
   *
   * @param settle what a fault means; gives null if it is one
   */
  record Call<Q, R, T>(
      Kind kind,
      MethodDescriptor<Q, R> method,
      Q request,
      Function<R, T> read,
      Function<QuireException, T> settle) {
    /** A call all of whose faults are faults. */
    Call(Kind kind, MethodDescriptor<Q, R> method, Q request, Function<R, T> read) {
      this(kind, method, request, read, fault -> null);
    }
  }

  /** The same calls on the same connections, otherwise. */
  Calls with(CallOptions options, Duration timeout, int retries) {
    return new Calls(connections, options, timeout, retries);
  }

  /** Calls on this thread. Interrupting it ends the call. */
  <Q, R, T> T run(Call<Q, R, T> call) {
    Attempts attempts = attempts(call.kind);
    while (true) {
      Trace trace = new Trace();
      Status status = Connections.LATE;
      Metadata trailers = null;
      try {
        long now = System.nanoTime();
        long end = attempts.attemptEnd(now);
        Channel channel = connections.await(attempts.connectMax(now));
        CallOptions options = options(trace, end);
        return call.read.apply(
            ClientCalls.blockingUnaryCall(channel, call.method, options, call.request));
      } catch (StatusRuntimeException e) {
        status = e.getStatus();
        trailers = e.getTrailers();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      try {
        pause(attempts, status, trailers, trace.reach());
      } catch (QuireException e) {
        return settled(call, e);
      }
    }
  }

  /** Calls without a thread that waits. Cancelling the future ends the call. */
  <Q, R, T> CompletableFuture<T> start(Call<Q, R, T> call) {
    Run<Q, R, T> run = new Run<>(call, attempts(call.kind));
    run.attempt();
    return run;
  }

  /**
   * A stream of answers, which begins when it is first read, and has a deadline only if the caller
   * names one.
   *
   * @param repeatable whether it loses nothing if it is begun again before the first answer
   */
  <Q, R, T> Subscription<T> subscribe(
      MethodDescriptor<Q, R> method, Q request, Function<R, T> read, boolean repeatable) {
    return new Stream<>(method, request, read, repeatable);
  }

  private Attempts attempts(Kind kind) {
    Duration time = timeout == null ? kind.timeout : timeout;
    return new Attempts(connections.name(), kind, retries, time.toNanos(), System.nanoTime());
  }

  private CallOptions options(Trace trace, long end) {
    return options
        .withDeadlineAfter(end - System.nanoTime(), NANOSECONDS)
        .withStreamTracerFactory(trace.factory());
  }

  /** Waits until the next attempt; throws what the call ends with if there is none. */
  private static void pause(Attempts attempts, Status status, Metadata trailers, Reach reach) {
    if (Thread.currentThread().isInterrupted() && reach != Reach.ANSWERED) {
      throw attempts.interrupted(reach);
    }
    long pause = attempts.pauseAfter(status, trailers, reach, System.nanoTime());
    try {
      NANOSECONDS.sleep(pause);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw attempts.interrupted(Reach.ANSWERED);
    }
  }

  private static <T> T settled(Call<?, ?, T> call, QuireException fault) {
    T settled = call.settle.apply(fault);
    if (settled == null) {
      throw fault;
    }
    return settled;
  }

  private final class Run<Q, R, T> extends CompletableFuture<T> {
    private final Call<Q, R, T> call;
    private final Attempts attempts;
    private volatile CompletableFuture<Void> waiting;
    private volatile ClientCall<Q, R> inFlight;

    Run(Call<Q, R, T> call, Attempts attempts) {
      this.call = call;
      this.attempts = attempts;
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      boolean cancelled = super.cancel(mayInterrupt);
      CompletableFuture<Void> wait = waiting;
      ClientCall<Q, R> sent = inFlight;
      if (cancelled && wait != null) {
        wait.cancel(mayInterrupt);
      }
      if (cancelled && sent != null) {
        sent.cancel("the caller cancelled it", null);
      }
      return cancelled;
    }

    void attempt() {
      orFail(
          () -> {
            long now = System.nanoTime();
            long end = attempts.attemptEnd(now);
            Channel ready = connections.next();
            if (ready != null) {
              send(ready, null, end);
            } else {
              waiting =
                  connections
                      .awaitAsync(attempts.connectMax(now))
                      .handleAsync(
                          (channel, wrong) -> {
                            orFail(() -> send(channel, wrong, end));
                            return null;
                          });
            }
          });
    }

    private void send(Channel channel, Throwable wrong, long end) {
      if (wrong != null) {
        failed(Status.fromThrowable(wrong), null, Reach.NOT_SENT);
        return;
      }
      if (isDone()) {
        return;
      }
      Trace trace = new Trace();
      ClientCall<Q, R> sent = channel.newCall(call.method, options(trace, end));
      inFlight = sent;
      sent.start(
          new ClientCall.Listener<>() {
            private R reply;

            @Override
            public void onMessage(R message) {
              reply = message;
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
              orFail(
                  () -> {
                    if (status.isOk() && reply != null) {
                      complete(call.read.apply(reply));
                    } else {
                      failed(status.isOk() ? NO_ANSWER : status, trailers, trace.reach());
                    }
                  });
            }
          },
          new Metadata());
      sent.request(2);
      sent.sendMessage(call.request);
      sent.halfClose();
      if (isCancelled()) {
        sent.cancel("the caller cancelled it", null);
      }
    }

    private void failed(Status status, Metadata trailers, Reach reach) {
      try {
        long pause = attempts.pauseAfter(status, trailers, reach, System.nanoTime());
        delayedExecutor(pause, NANOSECONDS).execute(this::attempt);
      } catch (QuireException fault) {
        complete(settled(call, fault));
      }
    }

    /** Nothing that is thrown leaves the future open. */
    private void orFail(Runnable step) {
      try {
        step.run();
      } catch (RuntimeException e) {
        completeExceptionally(e);
      }
    }
  }

  private final class Stream<Q, R, T> extends Subscription<T> {
    private final MethodDescriptor<Q, R> method;
    private final Q request;
    private final Function<R, T> read;
    private final boolean repeatable;
    private final Context.CancellableContext context = Context.current().withCancellation();
    private Attempts attempts;
    private long end;
    private Trace trace;
    private Iterator<R> replies;
    private boolean begun;

    Stream(MethodDescriptor<Q, R> method, Q request, Function<R, T> read, boolean repeatable) {
      this.method = method;
      this.request = request;
      this.read = read;
      this.repeatable = repeatable;
    }

    @Override
    public boolean hasNext() {
      if (attempts == null) {
        attempts = attempts(Kind.READ);
        end = attempts.attemptEnd(System.nanoTime());
      }
      while (true) {
        Status status = Connections.LATE;
        Metadata trailers = null;
        try {
          if (replies == null) {
            open();
          }
          boolean more = replies.hasNext();
          begun |= more;
          return more;
        } catch (StatusRuntimeException e) {
          status = e.getStatus();
          trailers = e.getTrailers();
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
        }
        if (context.isCancelled()) {
          return false;
        }
        Reach reach = trace.reach();
        if (begun || (reach == Reach.SENT && !repeatable)) {
          throw attempts.fault(status, reach);
        }
        pause(attempts, status, trailers, reach);
        replies = null;
      }
    }

    @Override
    public T next() {
      if (!hasNext()) {
        throw new NoSuchElementException("the stream has ended");
      }
      return read.apply(replies.next());
    }

    @Override
    public void close() {
      context.cancel(null);
    }

    private void open() throws InterruptedException {
      trace = new Trace();
      Channel channel = connections.await(attempts.connectMax(System.nanoTime()));
      CallOptions how =
          timeout == null ? options.withStreamTracerFactory(trace.factory()) : options(trace, end);
      context.run(
          () -> replies = ClientCalls.blockingServerStreamingCall(channel, method, how, request));
    }
  }
}
