package quire.client;

import com.google.protobuf.ByteString;

/** An event of a watch. */
public sealed interface WatchEvent {
  /** The key that has changed; empty for {@link Started}. */
  ByteString key();

  /** The watch has begun: every change after this is an event. */
  record Started() implements WatchEvent {
    @Override
    public ByteString key() {
      return ByteString.EMPTY;
    }
  }

  /**
   * A key has a new value.
   *
   * @param valueLeftOut the value is empty here because it is too large for an event; {@link
   *     QuireClient#get} has it
   */
  record Put(ByteString key, ByteString value, long version, boolean valueLeftOut)
      implements WatchEvent {}

  /** A key was deleted. */
  record Deleted(ByteString key, long version) implements WatchEvent {}

  /** A key's time was over. */
  record Expired(ByteString key, long version) implements WatchEvent {}

  /** A change of a kind that this version of the client does not know. */
  record Other(ByteString key, long version) implements WatchEvent {}
}
