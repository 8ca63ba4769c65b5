package quire.client;

import io.grpc.Status;

/** The server understood and will not; the message is the server's, or the code. */
public final class RefusedException extends QuireException {
  private static final long serialVersionUID = 1;

  RefusedException(Status status) {
    super(status, said(status, status.getCode().name()));
  }
}
