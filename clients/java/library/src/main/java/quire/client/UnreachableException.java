package quire.client;

import io.grpc.Status;

/** The server did not answer, and nothing was changed: nothing was sent, or it was a question. */
public final class UnreachableException extends QuireException {
  private static final long serialVersionUID = 1;

  private final boolean connected;

  UnreachableException(Status status, boolean connected) {
    super(status, "the server did not answer");
    this.connected = connected;
  }

  /** Whether there was a connection, so that the question may have reached the server. */
  public boolean connected() {
    return connected;
  }
}
