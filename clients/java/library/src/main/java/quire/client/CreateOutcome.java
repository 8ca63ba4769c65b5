package quire.client;

/** What came of creating an entry. */
public sealed interface CreateOutcome {
  /** The entry is new and has this version. */
  record Created(long version) implements CreateOutcome {}

  /** The key has an entry already; it is as it was. */
  record Exists() implements CreateOutcome {}
}
