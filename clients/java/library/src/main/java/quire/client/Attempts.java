package quire.client;

import static io.grpc.Status.Code.CANCELLED;
import static io.grpc.Status.Code.DEADLINE_EXCEEDED;
import static io.grpc.Status.Code.RESOURCE_EXHAUSTED;
import static io.grpc.Status.Code.UNAVAILABLE;
import static io.grpc.Status.Code.UNKNOWN;

import io.grpc.Metadata;
import io.grpc.Status;
import java.net.UnknownHostException;
import java.security.cert.CertificateException;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Decides if a call that failed is sent again, when, and what it ends with. All times are in
 * nanoseconds. Must not know any one call, nor how one is sent.
 */
final class Attempts {
  /** What sending a call twice would do. */
  enum Kind {
    /** It changes nothing. */
    READ(5),
    /** A change with a key, which happens once however often it is sent. */
    KEYED(30),
    /** A change that is sent again only if the server did nothing. */
    WRITE(5);

    final Duration timeout;

    Kind(int seconds) {
      timeout = Duration.ofSeconds(seconds);
    }
  }

  /** How far an attempt came. */
  enum Reach {
    /** No connection was ready. */
    NOT_SENT,
    /** It may have reached the server. */
    SENT,
    /** The server itself said how it ended. */
    ANSWERED
  }

  static final Metadata.Key<String> PUSHBACK =
      Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);

  /** Netty's words for a peer that does not speak HTTP/2; an alert of TLS begins with 21, 3. */
  private static final String NO_SETTINGS =
      "First received frame was not SETTINGS. Hex dump for first 5 bytes: ";

  private static final long PAUSE_FIRST = TimeUnit.MILLISECONDS.toNanos(100);
  private static final long PAUSE_MAX = TimeUnit.SECONDS.toNanos(2);

  /** Codes that a proxy may have made, or a server that has done its work. */
  private static final Set<Status.Code> OPEN =
      EnumSet.of(UNAVAILABLE, UNKNOWN, DEADLINE_EXCEEDED, CANCELLED);

  private final String address;
  private final Kind kind;
  private final int retries;
  private final long share;
  private final long deadline;
  private int failures;
  private long pause = PAUSE_FIRST;

  /** How the last attempt ended that the server may have carried out. */
  private Status doubt;

  private Reach doubtReach;

  Attempts(String address, Kind kind, int retries, long timeout, long now) {
    this.address = address;
    this.kind = kind;
    this.retries = retries;
    this.deadline = now + timeout;
    // A quarter or more, however many retries are allowed.
    this.share = kind == Kind.KEYED ? timeout / (Math.min(retries, 3) + 1) : timeout;
  }

  /** When an attempt ends that begins now. */
  long attemptEnd(long now) {
    return now + Math.min(share, deadline - now);
  }

  /** The longest time to wait for a connection; the rest is for an attempt's answer. */
  long connectMax(long now) {
    return Math.min(share / 5 * 4, deadline - now);
  }

  /** The pause before the next attempt; throws what the call ends with if there is none. */
  long pauseAfter(Status status, Metadata trailers, Reach reach, long now) {
    QuireException fault = fault(status, reach);
    failures++;
    boolean again =
        doubt != null
            ? kind == Kind.KEYED && retries > 0
            : failures <= retries && isPassing(status.getCode(), reach);
    long wait = (long) (pause * ThreadLocalRandom.current().nextDouble(0.8, 1.2));
    pause = Math.min(pause * 2, PAUSE_MAX);
    String wish = trailers == null ? null : trailers.get(PUSHBACK);
    if (wish != null) {
      wait = pushback(wish);
    }
    if (!again || wait < 0 || wait >= deadline - now) {
      throw fault;
    }
    return wait;
  }

  /** What a call ends with whose last attempt ended like this. */
  QuireException fault(Status status, Reach reach) {
    boolean isOpen = reach == Reach.SENT || OPEN.contains(status.getCode());
    if (kind != Kind.READ && reach != Reach.NOT_SENT && isOpen) {
      doubt = status;
      doubtReach = reach;
    }
    if (doubt != null) {
      return new OutcomeUnknownException(doubt, words(doubt, doubtReach));
    }
    if (reach == Reach.NOT_SENT || isOpen) {
      return new UnreachableException(status, words(status, reach), reach != Reach.NOT_SENT);
    }
    return new RefusedException(status);
  }

  /**
   * What a call ends with that the caller's thread was interrupted in; in a pause, if the last
   * attempt was answered.
   */
  QuireException interrupted(Reach reach) {
    Status status = Status.CANCELLED.withDescription("interrupted");
    if (doubt == null && reach == Reach.ANSWERED) {
      String words = address + " was not asked again: interrupted, and nothing was done";
      return new UnreachableException(status, words, true);
    }
    return fault(status, doubt == null ? reach : Reach.SENT);
  }

  /** The address, what the server did, and the first cause. */
  private String words(Status status, Reach reach) {
    String code = status.getCode().name();
    String said = QuireException.said(status, "");
    if (reach == Reach.ANSWERED) {
      return address + " answered " + code + (said.isEmpty() ? "" : ": " + said);
    }
    boolean isUntrusted = false;
    for (Throwable at = status.getCause(); at != null; at = at.getCause()) {
      isUntrusted |= at instanceof CertificateException;
      // The message of an unknown host is its name alone.
      if (at.getMessage() != null && !(at instanceof UnknownHostException)) {
        said = at.getMessage();
      }
    }
    if (isUntrusted) {
      said = "the server's certificate is not trusted: " + said;
    } else if (said.contains(NO_SETTINGS + "1503")) {
      said = "the server speaks TLS, and was called without; write https://";
    } else if (said.startsWith("not an SSL/TLS record")) {
      said = "the server does not speak TLS, and was called with it; write http://";
    }
    if (reach == Reach.SENT && status.getCode() == DEADLINE_EXCEEDED) {
      said = "time is up";
    }
    said = said.isEmpty() ? code : said;
    return address + (reach == Reach.SENT ? " did not answer: " : " cannot be reached: ") + said;
  }

  /** Whether another attempt may fare better, and does no harm. */
  private boolean isPassing(Status.Code code, Reach reach) {
    boolean isReadAgain = kind == Kind.READ && (code == UNAVAILABLE || code == UNKNOWN);
    return reach == Reach.NOT_SENT || code == RESOURCE_EXHAUSTED || isReadAgain;
  }

  /** The pause that the server wants; negative for never. */
  private static long pushback(String wish) {
    try {
      return TimeUnit.MILLISECONDS.toNanos(Long.parseLong(wish));
    } catch (NumberFormatException e) {
      return -1;
    }
  }
}
