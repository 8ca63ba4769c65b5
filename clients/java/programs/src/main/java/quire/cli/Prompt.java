package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.jline.reader.Candidate;
import org.jline.reader.EndOfFileException;
import org.jline.reader.LineReader;
import org.jline.reader.LineReaderBuilder;
import org.jline.reader.ParsedLine;
import org.jline.reader.Reference;
import org.jline.reader.UserInterruptException;
import org.jline.reader.impl.completer.ArgumentCompleter.ArgumentLine;
import org.jline.reader.impl.history.DefaultHistory;
import org.jline.terminal.Terminal;
import org.jline.terminal.TerminalBuilder;

/** The lines that a person types at a terminal, with completion and history. */
final class Prompt implements Lines {
  private static final int HISTORY_LINES_MAX = 1000;
  private static final int HISTORY_LINE_MAX = 1000;
  private static final long HISTORY_BYTES_MAX = 4L << 20;

  private final LineReader reader;

  Prompt(Seen seen, Map<String, String> environment) throws IOException {
    Terminal terminal = TerminalBuilder.builder().system(true).encoding(UTF_8).build();
    reader =
        LineReaderBuilder.builder()
            .terminal(terminal)
            .parser((line, cursor, context) -> typed(line.substring(0, cursor)))
            .completer(
                (reader, line, candidates) ->
                    fitting(seen, reader.getBuffer().upToCursor(), line.word())
                        .forEach(text -> candidates.add(candidate(text))))
            .history(new Earlier())
            .option(LineReader.Option.DISABLE_EVENT_EXPANSION, true)
            .option(LineReader.Option.HISTORY_TIMESTAMPED, false)
            .variable(LineReader.BELL_STYLE, "none")
            .variable(LineReader.HISTORY_SIZE, HISTORY_LINES_MAX)
            .variable(LineReader.HISTORY_FILE_SIZE, HISTORY_LINES_MAX)
            .build();
    // Some terminals send these also in the mode in which they should send others.
    var keys = reader.getKeyMaps().get(LineReader.MAIN);
    keys.bind(new Reference(LineReader.UP_LINE_OR_HISTORY), "\033[A");
    keys.bind(new Reference(LineReader.DOWN_LINE_OR_HISTORY), "\033[B");
    keys.bind(new Reference(LineReader.FORWARD_CHAR), "\033[C");
    keys.bind(new Reference(LineReader.BACKWARD_CHAR), "\033[D");
    Path history = history(environment);
    if (history != null) {
      reader.setVariable(LineReader.HISTORY_FILE, history);
    }
  }

  @Override
  public String next() {
    while (true) {
      try {
        return reader.readLine("quire client> ");
      } catch (UserInterruptException e) {
        // A half-typed line is dropped; on an empty line the user wants to leave.
        if (e.getPartialLine().isEmpty()) {
          return null;
        }
      } catch (EndOfFileException e) {
        return null;
      }
    }
  }

  /** What completes a word without a blank behind it. */
  private static Candidate candidate(String text) {
    return new Candidate(text, text, null, null, null, null, false);
  }

  /** What completes a line: a command, or all that follows it as one word. */
  private static ParsedLine typed(String line) {
    String[] parts = line.stripLeading().split("\\s+", 2);
    String word = parts[parts.length - 1];
    return new ArgumentLine(word, word.length());
  }

  private static List<String> fitting(Seen seen, String line, String word) {
    int start = line.length() - word.length();
    if (line.substring(0, start).isBlank()) {
      return Command.USAGES.stream()
          .map(Command.Usage::name)
          .filter(name -> name.startsWith(word))
          .toList();
    }
    String quote = word.startsWith("\"") || word.startsWith("'") ? word.substring(0, 1) : "";
    return seen.arguments(line.substring(0, start).strip(), word.substring(quote.length())).stream()
        .map(text -> quote + text + quote)
        .toList();
  }

  /** The file of earlier lines, for its owner alone; null if there can be none. */
  private static Path history(Map<String, String> environment) {
    String state = environment.getOrDefault("XDG_STATE_HOME", "");
    String home = environment.getOrDefault("HOME", "");
    Path folder = state.startsWith("/") ? Path.of(state) : Path.of(home, ".local", "state");
    Path file = folder.resolve("quire").resolve("quire_client_java_history");
    if (!file.isAbsolute()) {
      return null;
    }
    try {
      Files.createDirectories(
          file.getParent(),
          PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      if (Files.notExists(file)) {
        Files.createFile(
            file,
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
      }
      return Files.isRegularFile(file) && Files.size(file) <= HISTORY_BYTES_MAX ? file : null;
    } catch (IOException e) {
      return null;
    }
  }

  /** Lines typed before; not those of unusual length. */
  private static final class Earlier extends DefaultHistory {
    @Override
    public void add(Instant time, String line) {
      if (line.length() <= HISTORY_LINE_MAX) {
        super.add(time, line);
      }
    }
  }
}
