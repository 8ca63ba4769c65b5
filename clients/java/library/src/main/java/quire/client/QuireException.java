package quire.client;

import io.grpc.Status;
import java.util.Optional;

/** A fault: a call that has no answer of the store's. */
public abstract sealed class QuireException extends RuntimeException
    permits RefusedException, UnreachableException, OutcomeUnknownException {
  private static final long serialVersionUID = 1;

  private final Status.Code code;

  /** {@code words} are for a status that has none. */
  QuireException(Status status, String words) {
    super(
        Optional.ofNullable(status.getDescription()).filter(it -> !it.isEmpty()).orElse(words),
        status.getCause());
    code = status.getCode();
  }

  /** The code of gRPC. */
  public Status.Code code() {
    return code;
  }
}
