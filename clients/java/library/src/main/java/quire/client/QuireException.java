package quire.client;

import io.grpc.Status;
import java.util.Optional;

/** A fault: a call that has no answer of the store's. */
public abstract sealed class QuireException extends RuntimeException
    permits RefusedException, UnreachableException, OutcomeUnknownException {
  private static final long serialVersionUID = 1;

  private final Status.Code code;

  QuireException(Status status, String message) {
    super(message, status.getCause());
    code = status.getCode();
  }

  /** What is said of a status; {@code words} if nothing is. */
  static String said(Status status, String words) {
    return Optional.ofNullable(status.getDescription()).filter(it -> !it.isEmpty()).orElse(words);
  }

  /** The code of gRPC. */
  public Status.Code code() {
    return code;
  }
}
