package quire.client;

import io.grpc.Status;

/** A write without a key was sent, and the server may have done it or not. */
public final class OutcomeUnknownException extends QuireException {
  private static final long serialVersionUID = 1;

  OutcomeUnknownException(Status status, String message) {
    super(status, message);
  }
}
