package quire.client;

/** What came of removing an entry. */
public sealed interface DeleteOutcome {
  /** The key has no entry now; {@code existed} is true if it had one. */
  record Deleted(boolean existed) implements DeleteOutcome {}

  /** The entry has another version than the expected one; it is as it was. */
  record AnotherVersion() implements DeleteOutcome {}
}
