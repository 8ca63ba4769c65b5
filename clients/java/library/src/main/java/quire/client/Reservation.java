package quire.client;

import io.grpc.Status;
import java.util.Optional;
import java.util.OptionalInt;
import quire.client.wire.Bookstore.ReservationReply;

/**
 * A reservation after a call.
 *
 * @param success true if the call did what it is for, now or when it was sent first
 * @param message the server's words, for people
 * @param replayed true if an earlier call with the same key led to this state, or the end of the
 *     time
 * @param id of the book; 0 if there is no reservation
 * @param quantity copies; 0 if there is no reservation
 * @param number of the entry in the transaction log that led to this state, the purchase's number
 *     once the copies are bought; 0 if nothing was written there
 * @param stockLeft copies that can be bought or reserved, if the server sends them
 * @param untilMs when the copies are or were given back by themselves, in milliseconds since
 *     1970-01-01T00:00:00Z by the server's clock; 0 if there is no reservation
 * @param code how the last attempt in doubt ended, if the outcome is unknown
 */
public record Reservation(
    Outcome outcome,
    boolean success,
    String key,
    String message,
    boolean replayed,
    int id,
    int quantity,
    long number,
    OptionalInt stockLeft,
    long untilMs,
    Optional<Status.Code> code) {
  /** The state of a reservation after a call; the order is that of the wire. */
  public enum Outcome {
    /** A state that this version of the client does not know. */
    UNSPECIFIED,
    HELD,
    /** Confirmed: the sale is on disk. */
    BOUGHT,
    RELEASED,
    /** Its time is over, and the copies were given back. */
    EXPIRED,
    /** No copy is left; nothing is held, and the same key may try again. */
    SOLD_OUT,
    /** Fewer copies are left than were asked for; as for {@code SOLD_OUT}. */
    TOO_FEW,
    NO_SUCH_BOOK,
    /** There is no reservation with the key. */
    NO_SUCH_RESERVATION,
    /** The call may have been done or not. The same call, sent again with the key, settles it. */
    UNKNOWN
  }

  static Reservation of(ReservationReply reply, String key) {
    int outcome = reply.getOutcomeValue();
    // The last one is not of the wire.
    boolean isKnown = outcome > 0 && outcome < Outcome.values().length - 1;
    return new Reservation(
        isKnown ? Outcome.values()[outcome] : Outcome.UNSPECIFIED,
        reply.getSuccess(),
        key,
        reply.getMessage(),
        reply.getReplayed(),
        reply.getId(),
        reply.getQuantity(),
        reply.getNumber(),
        reply.hasStockLeft() ? OptionalInt.of(reply.getStockLeft()) : OptionalInt.empty(),
        reply.getUntilMs(),
        Optional.empty());
  }

  static Reservation unknown(QuireException fault, String key) {
    return new Reservation(
        Outcome.UNKNOWN,
        false,
        key,
        fault.getMessage(),
        false,
        0,
        0,
        0,
        OptionalInt.empty(),
        0,
        Optional.of(fault.code()));
  }
}
