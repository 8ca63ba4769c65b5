package quire.cli;

import com.google.gson.JsonObject;

/**
 * What came of a command.
 *
 * @param isFault whether it is no answer of the store's
 * @param text as a terminal may show it
 */
record Answer(int exit, boolean isFault, String text, JsonObject json) {
  static final int DONE = 0;
  static final int REFUSED = 1;
  static final int USAGE = 2;
  static final int UNREACHABLE = 3;
  static final int UNKNOWN = 4;

  /** An answer of the store's. */
  static Answer of(boolean success, String text, JsonObject json) {
    return new Answer(success ? DONE : REFUSED, false, text, json);
  }
}
