package quire.client;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.OptionalInt;
import java.util.OptionalLong;
import quire.client.wire.Bookstore;

/**
 * An entry of the transaction log.
 *
 * @param number 1, 2, 3 … in the order of commits
 * @param quantity copies that a purchase or a reservation asked for
 * @param before copies, or cents for a price change; absent if there was no such book
 * @param after as {@code before}
 * @param key of the purchase or the reservation; empty if it had none
 */
public record LogEntry(
    long number,
    Instant time,
    Kind kind,
    int bookId,
    OptionalInt quantity,
    OptionalLong before,
    OptionalLong after,
    ByteString key) {
  /** The kind of an entry; the order is that of the wire. */
  public enum Kind {
    /** A kind that this version of the client does not know. */
    OTHER,
    ADDED,
    PURCHASE,
    /** A purchase with a key that was refused. */
    REFUSED,
    RESTOCK,
    PRICE,
    /** Another program set the stock in the database. */
    ADJUSTED,
    REMOVED,
    /** Another program changed the title or the topic. */
    EDITED,
    DELISTED,
    LISTED,
    /** Copies are held for the one who has the key. */
    RESERVED,
    /** Copies that were held were given back. */
    RELEASED
  }

  static LogEntry of(Bookstore.LogEntry entry) {
    int kind = entry.getKindValue();
    return new LogEntry(
        entry.getNumber(),
        Instant.ofEpochMilli(entry.getTimeMs()),
        kind > 0 && kind < Kind.values().length ? Kind.values()[kind] : Kind.OTHER,
        entry.getBookId(),
        entry.hasQuantity() ? OptionalInt.of(entry.getQuantity()) : OptionalInt.empty(),
        entry.hasBefore() ? OptionalLong.of(entry.getBefore()) : OptionalLong.empty(),
        entry.hasAfter() ? OptionalLong.of(entry.getAfter()) : OptionalLong.empty(),
        entry.getIdempotencyKey());
  }
}
