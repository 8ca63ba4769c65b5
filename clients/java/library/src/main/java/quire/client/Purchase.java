package quire.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.Objects.requireNonNull;

import java.security.SecureRandom;
import java.util.HexFormat;

/**
 * What to buy or to reserve. The key names the purchase or the reservation: sending it again with
 * the same key buys nothing twice, in this program or another.
 *
 * @param quantity copies, all or none
 * @param key 1 to 64 bytes
 */
public record Purchase(int id, int quantity, String key) {
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final int KEY_BYTES_MAX = 64;

  public Purchase {
    checkId(id);
    if (quantity < 1) {
      throw new IllegalArgumentException(
          "quantity is " + quantity + "; it must be a whole number from 1");
    }
    checkKey(key);
  }

  /** One copy of a book, with a key of 32 random hexadecimal digits. */
  public static Purchase of(int id) {
    byte[] key = new byte[16];
    RANDOM.nextBytes(key);
    return new Purchase(id, 1, HexFormat.of().formatHex(key));
  }

  /** The same with another number of copies. */
  public Purchase quantity(int quantity) {
    return new Purchase(id, quantity, key);
  }

  /** The same with a key of the caller's. */
  public Purchase key(String key) {
    return new Purchase(id, quantity, key);
  }

  static void checkKey(String key) {
    int bytes = requireNonNull(key, "key").getBytes(UTF_8).length;
    if (bytes < 1 || bytes > KEY_BYTES_MAX) {
      throw new IllegalArgumentException(
          "the idempotency key has " + bytes + " bytes; it must have 1 to 64");
    }
  }

  static void checkId(int id) {
    if (id < 1) {
      throw new IllegalArgumentException("id is " + id + "; it must be a whole number from 1");
    }
  }
}
