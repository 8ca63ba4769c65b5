package quire.client;

import io.grpc.Status;
import java.util.OptionalInt;

/**
 * What came of a purchase. All but {@link Unknown} is the store's own answer, and {@code replayed}
 * tells that it is the one to an earlier purchase with the same key: nothing was bought again.
 */
public sealed interface BuyOutcome {
  /** The key of the purchase. */
  String key();

  /** The server's words, for people. */
  String message();

  /** Whether this is the stored answer to an earlier purchase with the same key. */
  boolean replayed();

  /** The purchase's number in the transaction log; 0 if nothing was bought, or it is not said. */
  default long number() {
    return 0;
  }

  /** Copies left after the purchase, if the store says it. */
  OptionalInt stockLeft();

  /** The sale is on disk. */
  record Bought(String key, String message, boolean replayed, long number, OptionalInt stockLeft)
      implements BuyOutcome {}

  /** No copy is left. */
  record SoldOut(String key, String message, boolean replayed, OptionalInt stockLeft)
      implements BuyOutcome {}

  /** Some copies are left, but fewer than were asked for. */
  record TooFew(String key, String message, boolean replayed, OptionalInt stockLeft)
      implements BuyOutcome {}

  /** There is no book with the id. */
  record NoSuchBook(String key, String message, boolean replayed, OptionalInt stockLeft)
      implements BuyOutcome {}

  /** For no known reason; the message may have one. */
  record NotBought(String key, String message, boolean replayed, OptionalInt stockLeft)
      implements BuyOutcome {}

  /**
   * No one knows if the book was bought. The same purchase, sent again later with its key, tells.
   *
   * @param code how the last attempt in doubt ended
   */
  record Unknown(String key, String message, Status.Code code) implements BuyOutcome {
    @Override
    public boolean replayed() {
      return false;
    }

    @Override
    public OptionalInt stockLeft() {
      return OptionalInt.empty();
    }
  }
}
