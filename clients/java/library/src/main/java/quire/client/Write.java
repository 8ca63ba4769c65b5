package quire.client;

import static java.util.Objects.requireNonNull;

import com.google.protobuf.ByteString;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * An entry to write.
 *
 * @param timeToLive when the entry expires, at least a millisecond; never if absent
 * @param expectedVersion the version that an update must find, or it changes nothing
 */
public record Write(
    ByteString key, ByteString value, Optional<Duration> timeToLive, OptionalLong expectedVersion) {
  public Write {
    requireNonNull(key, "key");
    requireNonNull(value, "value");
    if (timeToLive.isPresent() && timeToLive.get().compareTo(Duration.ofMillis(1)) < 0) {
      throw new IllegalArgumentException(
          "timeToLive is " + timeToLive.get() + "; it must be 1 ms or more");
    }
  }

  /** A value that does not expire, in place of any version. */
  public static Write of(ByteString key, ByteString value) {
    return new Write(key, value, Optional.empty(), OptionalLong.empty());
  }

  /** The same with text, in UTF-8. */
  public static Write of(String key, String value) {
    return of(ByteString.copyFromUtf8(key), ByteString.copyFromUtf8(value));
  }

  /** The same with an entry that expires. */
  public Write timeToLive(Duration timeToLive) {
    return new Write(key, value, Optional.of(timeToLive), expectedVersion);
  }

  /** The same for an update that insists on a version. */
  public Write expectedVersion(long version) {
    return new Write(key, value, timeToLive, OptionalLong.of(version));
  }

  long timeToLiveMs() {
    return timeToLive.map(Duration::toMillis).orElse(0L);
  }
}
