package quire.client;

import io.grpc.Status;
import java.util.OptionalInt;

/**
 * What came of a purchase. All but {@link Unknown} is the store's own answer; {@code replayed} is
 * true if it is the one to an earlier purchase with the same key: nothing was bought again.
 */
public sealed interface BuyOutcome {
  /** The key of the purchase. */
  String key();

  /** The server's words, for people. */
  String message();

  /** True if this is the stored answer to an earlier purchase with the same key. */
  boolean replayed();

  /** The purchase's number in the transaction log; 0 if nothing was bought or none was sent. */
  default long number() {
    return 0;
  }

  /** Copies left after the purchase, if the server sends them. */
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
   * The book may have been bought or not. The same purchase, sent again later with its key, settles
   * it.
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
