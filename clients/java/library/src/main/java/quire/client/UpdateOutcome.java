package quire.client;

/** What came of replacing a value. */
public sealed interface UpdateOutcome {
  /** The entry has the new value and this version. */
  record Updated(long version) implements UpdateOutcome {}

  /** The key has no entry. */
  record NoSuchKey() implements UpdateOutcome {}

  /** The entry has another version than the expected one; it is as it was. */
  record AnotherVersion() implements UpdateOutcome {}
}
