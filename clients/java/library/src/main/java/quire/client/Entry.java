package quire.client;

import com.google.protobuf.ByteString;
import java.time.Duration;
import java.util.Optional;
import quire.client.wire.Kv;

/**
 * An entry of the key-value store.
 *
 * @param version greater than that of every earlier write; unsigned
 * @param timeLeft absent if the entry does not expire
 * @param valueLeftOut the value is empty here because it is too large for a scan; {@link
 *     QuireClient#get} has it
 */
public record Entry(
    ByteString key,
    ByteString value,
    long version,
    Optional<Duration> timeLeft,
    boolean valueLeftOut) {
  static Entry of(ByteString key, Kv.RetrieveResponse reply) {
    Optional<Duration> left = left(reply.hasTimeToLiveMs(), reply.getTimeToLiveMs());
    return new Entry(key, reply.getValue(), reply.getVersion(), left, false);
  }

  static Entry of(Kv.Entry entry) {
    Optional<Duration> left = left(entry.hasTimeToLiveMs(), entry.getTimeToLiveMs());
    return new Entry(
        entry.getKey(), entry.getValue(), entry.getVersion(), left, entry.getValueLeftOut());
  }

  private static Optional<Duration> left(boolean expires, long leftMs) {
    return expires ? Optional.of(Duration.ofMillis(leftMs)) : Optional.empty();
  }
}
