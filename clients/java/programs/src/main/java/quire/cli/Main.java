package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.util.List;
import java.util.Map;
import java.util.Set;
import quire.client.QuireClient;

/** {@code quire-client}: the shopper's commands, one, or those of a prompt or a pipe. */
public final class Main {
  private static final Set<String> BARE = Set.of("json", "help", "version");
  private static final Set<String> VALUED =
      Set.of("timeout", "retries", "key", "token", "ca", "certificate", "key-file");

  private final PrintStream out;
  private final PrintStream err;
  private final boolean isJson;
  private final Shop shop;

  /** The highest exit code of the commands so far. */
  private int worst = Answer.DONE;

  private Main(PrintStream out, PrintStream err, boolean isJson, Shop shop) {
    this.out = out;
    this.err = err;
    this.isJson = isJson;
    this.shop = shop;
  }

  public static void main(String[] words) {
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);
    PrintStream err = new PrintStream(new FileOutputStream(FileDescriptor.err), false, UTF_8);
    int exit;
    try {
      exit = talk(words, out, err);
    } catch (UsageException e) {
      print(err, "quire-client: " + Screen.line(e.getMessage()));
      exit = Answer.USAGE;
    } catch (IOException e) {
      print(
          err,
          "quire-client: cannot read commands: " + Screen.line(String.valueOf(e.getMessage())));
      exit = Answer.USAGE;
    }
    Interrupts.end(exit);
  }

  private static int talk(String[] given, PrintStream out, PrintStream err)
      throws UsageException, IOException {
    Arguments arguments = Arguments.parse(given, BARE, VALUED);
    if (arguments.flags().containsKey("help")) {
      try (InputStream help = Main.class.getResourceAsStream("/help.txt")) {
        help.transferTo(out);
      }
      return Answer.DONE;
    }
    if (arguments.flags().containsKey("version")) {
      print(out, "quire-client 0.1.0");
      return Answer.DONE;
    }
    List<String> words = arguments.words();
    boolean hasAddress = hasAddress(words);
    Target target = Target.parse(hasAddress ? words.get(0) : "127.0.0.1:10086");
    words = words.subList(hasAddress ? 1 : 0, words.size());
    arguments.key();
    Map<String, String> environment = System.getenv();
    try (QuireClient client = arguments.client(target, environment)) {
      Seen seen = new Seen();
      Shop shop = new Shop(client, target.text(), arguments, seen);
      Main main = new Main(out, err, arguments.flags().containsKey("json"), shop);
      if (!words.isEmpty()) {
        return main.run(Command.parse(words));
      } else if (!Boolean.getBoolean("quire.terminal")) {
        return main.all(Lines.of(System.in));
      }
      return main.all(new Prompt(seen, environment));
    }
  }

  /** No command looks like an address; a word that could be a host is one if a command follows. */
  private static boolean hasAddress(List<String> words) {
    if (words.isEmpty() || Command.isName(words.get(0))) {
      return false;
    }
    String first = words.get(0);
    boolean looksLikeOne = first.equals("localhost") || first.matches("(?s).*[:.\\[].*");
    return looksLikeOne || (words.size() > 1 && Command.isName(words.get(1)));
  }

  /** Runs each line; the exit code is the highest of theirs, so that a script misses no failure. */
  private int all(Lines lines) throws IOException {
    while (true) {
      int exit;
      try {
        String line = lines.next();
        if (line == null) {
          return worst;
        }
        List<String> words = Lines.words(line);
        if (words.isEmpty()) {
          continue;
        }
        Command command = Command.parse(words);
        if (command instanceof Command.Exit) {
          return worst;
        }
        exit = run(command);
      } catch (UsageException e) {
        print(err, Screen.line(e.getMessage()));
        exit = Answer.USAGE;
      }
      worst = Math.max(worst, exit);
    }
  }

  private int run(Command command) throws UsageException {
    if (command instanceof Command.Exit) {
      return Answer.DONE;
    } else if (command instanceof Command.Help) {
      print(out, Command.help());
      return Answer.DONE;
    }
    boolean isPurchase = command instanceof Command.Buy;
    if (isPurchase) {
      Interrupts.hold();
    }
    Answer answer = shop.run(command);
    if (isJson) {
      print(out, Screen.json(answer.json()));
    } else {
      print(answer.isFault() ? err : out, answer.text());
    }
    if (isPurchase) {
      Interrupts.release(Math.max(worst, answer.exit()));
    }
    return answer.exit();
  }

  private static void print(PrintStream to, String text) {
    to.print(text + "\n");
    to.flush();
  }
}
