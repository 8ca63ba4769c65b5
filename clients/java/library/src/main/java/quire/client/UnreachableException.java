package quire.client;

import io.grpc.Status;
import java.net.UnknownHostException;
import java.security.cert.CertificateException;

/**
 * The server did not answer, and nothing was changed: nothing was sent, or it was a question. The
 * message has the address and the cause.
 */
public final class UnreachableException extends QuireException {
  private static final long serialVersionUID = 1;

  private final boolean connected;

  UnreachableException(String address, Status status, boolean connected) {
    super(
        status,
        address + (connected ? " did not answer: " : " cannot be reached: ") + words(status));
    this.connected = connected;
  }

  /** Whether there was a connection, so that the question may have reached the server. */
  public boolean connected() {
    return connected;
  }

  /** The first cause of a failure. */
  private static String words(Status status) {
    String said = said(status, status.getCode().name());
    boolean isUntrusted = false;
    for (Throwable at = status.getCause(); at != null; at = at.getCause()) {
      isUntrusted |= at instanceof CertificateException;
      // The message of an unknown host is its name alone.
      if (at.getMessage() != null && !(at instanceof UnknownHostException)) {
        said = at.getMessage();
      }
    }
    return isUntrusted ? "the server's certificate is not trusted: " + said : said;
  }
}
