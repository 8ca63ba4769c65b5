package quire.connect;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.TypeConversionException;
import quire.client.QuireClient;
import quire.client.QuireClientBuilder;

/** Flags of the command line and the driver for reaching a store. */
public final class Connect {
  private static final int RETRIES_MAX = 1_000_000;

  @Option(
      names = "--timeout",
      scope = ScopeType.INHERIT,
      converter = Time.class,
      paramLabel = "TIME",
      description = "Longest time for a call, as 500ms, 5s or 2min.")
  Duration timeout;

  @Option(
      names = "--retries",
      scope = ScopeType.INHERIT,
      defaultValue = "3",
      paramLabel = "TIMES",
      description = "How often to send again; 3 if absent.")
  int retries;

  @Option(
      names = "--token",
      scope = ScopeType.INHERIT,
      defaultValue = "${env:QUIRE_TOKEN}",
      description = "Token for a server that requires one; better in QUIRE_TOKEN.")
  public String token;

  @Option(
      names = "--ca",
      scope = ScopeType.INHERIT,
      defaultValue = "${env:SSL_CERT_FILE}",
      description = "Certificates in PEM to trust, instead of the system's.")
  Path ca;

  @Option(
      names = "--certificate",
      scope = ScopeType.INHERIT,
      description = "Client certificate in PEM, if the server requires one.")
  Path certificate;

  @Option(
      names = "--key-file",
      scope = ScopeType.INHERIT,
      description = "Private key of --certificate.")
  Path keyFile;

  /**
   * A client of the servers at addresses with commas between.
   *
   * @throws IllegalArgumentException if a flag or an address is wrong
   */
  public QuireClient client(String text) {
    if ((certificate == null) != (keyFile == null) || retries < 0 || retries > RETRIES_MAX) {
      throw new IllegalArgumentException(
          "--certificate and --key-file belong together, and --retries must be 0 to 1000000");
    }
    QuireClientBuilder builder = QuireClient.builder(text.split(",", -1));
    if (token != null && !token.isEmpty()) {
      builder.token(token);
    }
    if (text.contains("https://")) {
      if (ca != null) {
        builder.trust(ca);
      }
      if (certificate != null) {
        builder.identity(certificate, keyFile);
      }
    }
    QuireClient client = builder.build().withRetries(retries);
    return timeout == null ? client : client.withTimeout(timeout);
  }

  /** The files of certificates and keys, each behind its flag. */
  public List<String> files() {
    Map<String, Path> files = new LinkedHashMap<>();
    files.put("--ca", ca);
    files.put("--certificate", certificate);
    files.put("--key-file", keyFile);
    files.values().removeIf(Objects::isNull);
    return files.entrySet().stream()
        .flatMap(file -> Stream.of(file.getKey(), file.getValue().toString()))
        .toList();
  }

  private static final class Time implements ITypeConverter<Duration> {
    private static final Pattern FORM = Pattern.compile("([0-9]{1,9}(?:\\.[0-9]+)?)(ms|s|min)?");

    @Override
    public Duration convert(String text) {
      Matcher found = FORM.matcher(text);
      if (found.matches()) {
        String unit = found.group(2) == null ? "s" : found.group(2);
        double ms = unit.equals("ms") ? 1 : unit.equals("s") ? 1_000 : 60_000;
        ms *= Double.parseDouble(found.group(1));
        if (ms >= 1 && ms <= Duration.ofDays(1).toMillis()) {
          return Duration.ofNanos((long) (ms * 1e6));
        }
      }
      throw new TypeConversionException("it must be a time from 1ms to 24h, as 500ms, 5s or 2min");
    }
  }
}
