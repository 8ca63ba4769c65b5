package quire.cli;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.math.BigDecimal;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import quire.client.QuireClient;
import quire.client.QuireClientBuilder;

/**
 * The words of a command line, taken apart.
 *
 * @param flags without the dashes before them; one that takes no value has an empty one
 * @param words what is no flag
 */
public record Arguments(Map<String, String> flags, List<String> words) {
  private static final Pattern TIME = Pattern.compile("([0-9]+(?:\\.[0-9]+)?)(ms|s|min)?");
  private static final Map<String, Integer> MILLISECONDS =
      Map.of("ms", 1, "s", 1000, "min", 60_000);
  private static final BigDecimal TIME_MAX_MS = BigDecimal.valueOf(Duration.ofHours(24).toMillis());

  /** Takes words apart; a flag is bare, or takes a value behind {@code =} or as the next word. */
  public static Arguments parse(String[] words, Set<String> bare, Set<String> valued)
      throws UsageException {
    Map<String, String> flags = new HashMap<>();
    List<String> rest = new ArrayList<>();
    for (int i = 0; i < words.length; i++) {
      String word = words[i];
      if (word.equals("--")) {
        rest.addAll(List.of(words).subList(i + 1, words.length));
        break;
      }
      if (!word.matches("(?s)-[^0-9].*")) {
        rest.add(word);
        continue;
      }
      int equals = word.indexOf('=');
      String flag = equals < 0 ? word : word.substring(0, equals);
      String name = flag.startsWith("--") ? flag.substring(2) : "";
      if (bare.contains(name)) {
        if (equals >= 0) {
          throw new UsageException(flag + " takes no value");
        }
        flags.put(name, "");
        if (name.equals("help") || name.equals("version")) {
          break;
        }
      } else if (valued.contains(name)) {
        if (equals < 0 && i + 1 == words.length) {
          throw new UsageException(flag + " wants a value");
        }
        flags.put(name, equals < 0 ? words[++i] : word.substring(equals + 1));
      } else {
        throw new UsageException("there is no flag '" + flag + "'; --help lists them");
      }
    }
    return new Arguments(flags, rest);
  }

  /** A client as the flags want it; {@code environment} has the token if no flag does. */
  public QuireClient client(Target target, Map<String, String> environment) throws UsageException {
    Duration timeout = flags.containsKey("timeout") ? time(flags.get("timeout")) : null;
    int retries = retries();
    QuireClientBuilder builder = QuireClient.builder(target.addresses().toArray(String[]::new));
    String token = flags.getOrDefault("token", environment.getOrDefault("QUIRE_TOKEN", ""));
    if (!token.chars().allMatch(character -> character >= ' ' && character <= '~')) {
      throw new UsageException("--token has characters that no token has");
    }
    if (!token.isEmpty()) {
      builder.token(token);
    }
    if (flags.containsKey("certificate") != flags.containsKey("key-file")) {
      throw new UsageException(
          "--certificate and --key-file belong together; give both or neither");
    }
    if (target.isTls()) {
      builder.tls();
      String trusted = flags.getOrDefault("ca", environment.getOrDefault("SSL_CERT_FILE", ""));
      if (!trusted.isEmpty()) {
        builder.trust(Path.of(trusted));
      }
      if (flags.containsKey("certificate")) {
        builder.identity(Path.of(flags.get("certificate")), Path.of(flags.get("key-file")));
      }
    }
    try {
      QuireClient client = builder.build().withRetries(retries);
      return timeout == null ? client : client.withTimeout(timeout);
    } catch (IllegalArgumentException e) {
      throw new UsageException(e.getMessage());
    }
  }

  /** The key of a purchase; null if none was given. */
  String key() throws UsageException {
    String key = flags.get("key");
    int bytes = key == null ? 1 : key.getBytes(UTF_8).length;
    if (bytes < 1 || bytes > 64) {
      throw new UsageException("the idempotency key has " + bytes + " bytes; it must have 1 to 64");
    }
    return key;
  }

  private int retries() throws UsageException {
    String text = flags.getOrDefault("retries", "3");
    if (!text.matches("\\+?0*[0-9]{1,7}") || Integer.parseInt(text) > 1_000_000) {
      throw new UsageException(
          "--retries is '" + text + "'; it must be a whole number from 0 to 1000000");
    }
    return Integer.parseInt(text);
  }

  private static Duration time(String text) throws UsageException {
    Matcher time = TIME.matcher(text);
    if (time.matches() && text.length() < 40) {
      String unit = time.group(2) == null ? "s" : time.group(2);
      BigDecimal ms =
          new BigDecimal(time.group(1)).multiply(BigDecimal.valueOf(MILLISECONDS.get(unit)));
      if (ms.compareTo(BigDecimal.ONE) >= 0 && ms.compareTo(TIME_MAX_MS) <= 0) {
        return Duration.ofNanos(ms.movePointRight(6).longValue());
      }
    }
    throw new UsageException(
        "--timeout is '" + text + "'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min");
  }
}
