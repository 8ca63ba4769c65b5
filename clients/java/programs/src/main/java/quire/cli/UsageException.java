package quire.cli;

/** A command line or a command that was not understood; the message says why. */
public final class UsageException extends Exception {
  private static final long serialVersionUID = 1;

  public UsageException(String reason) {
    super(reason);
  }
}
