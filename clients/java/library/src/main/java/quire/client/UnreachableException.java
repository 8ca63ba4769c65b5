package quire.client;

import io.grpc.Status;

/**
 * The server did not answer, and nothing was changed: nothing was sent, or it was a question. The
 * message has the address and the cause.
 */
public final class UnreachableException extends QuireException {
  private static final long serialVersionUID = 1;

  private final boolean sent;

  UnreachableException(Status status, String message, boolean sent) {
    // Without a connection the code is UNAVAILABLE, even if the wait ended with another.
    super(
        sent || status.getCode() == Status.Code.CANCELLED
            ? status
            : Status.UNAVAILABLE.withCause(status.getCause()),
        message);
    this.sent = sent;
  }

  /** Whether there was a connection, so that the question may have reached the server. */
  public boolean sent() {
    return sent;
  }
}
