package quire.client;

import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.TlsChannelCredentials;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/** The settings of a client. */
public final class QuireClientBuilder {
  private final List<Address> addresses;
  private boolean tls;
  private Optional<Path> trusted = Optional.empty();
  private Optional<Path> certificate = Optional.empty();
  private Optional<Path> keyFile = Optional.empty();
  private Optional<String> token = Optional.empty();

  QuireClientBuilder(String... addresses) {
    if (addresses.length == 0) {
      throw new IllegalArgumentException("there is no address; give one, as 127.0.0.1:10086");
    }
    this.addresses = Arrays.stream(addresses).map(Address::parse).toList();
    tls = this.addresses.stream().anyMatch(Address::isTls);
    if (tls && !this.addresses.stream().allMatch(Address::isTls)) {
      throw new IllegalArgumentException("write https:// before each address, or before none");
    }
  }

  /** Speaks TLS; with servers that the system trusts, unless {@link #trust} says otherwise. */
  public QuireClientBuilder tls() {
    tls = true;
    return this;
  }

  /** Speaks TLS with servers that these certificates, in PEM, vouch for. */
  public QuireClientBuilder trust(Path certificates) {
    trusted = Optional.of(certificates);
    return tls();
  }

  /** Speaks TLS and shows a certificate if asked for one; PEM, the key in PKCS #8. */
  public QuireClientBuilder identity(Path certificate, Path key) {
    this.certificate = Optional.of(certificate);
    keyFile = Optional.of(key);
    return tls();
  }

  /** Shows a token with each call. */
  public QuireClientBuilder token(String token) {
    this.token = Optional.of(token);
    return this;
  }

  /**
   * Makes the client. It connects with the first call.
   *
   * @throws IllegalArgumentException if a file cannot be read, or holds nothing of its kind
   */
  public QuireClient build() {
    return QuireClient.of(connections(), token);
  }

  private Connections connections() {
    if (!tls) {
      return new Connections(addresses, InsecureChannelCredentials.create());
    }
    TlsChannelCredentials.Builder credentials = TlsChannelCredentials.newBuilder();
    try {
      if (trusted.isPresent()) {
        credentials.trustManager(new ByteArrayInputStream(certificates(trusted.get())));
      }
      if (certificate.isPresent()) {
        credentials.keyManager(
            new ByteArrayInputStream(certificates(certificate.get())),
            new ByteArrayInputStream(read(keyFile.get())));
      }
    } catch (IOException e) {
      throw new AssertionError("memory can be read", e);
    }
    ChannelCredentials built = credentials.build();
    try {
      return new Connections(addresses, built);
    } catch (IllegalArgumentException e) {
      // The certificates were read before; what is left is the key.
      throw keyFile.isPresent() ? unreadable(keyFile.get(), e) : e;
    }
  }

  private static byte[] certificates(Path file) {
    byte[] pem = read(file);
    try {
      var found =
          CertificateFactory.getInstance("X.509")
              .generateCertificates(new ByteArrayInputStream(pem));
      if (found.isEmpty()) {
        throw unreadable(file, null);
      }
      return pem;
    } catch (CertificateException e) {
      throw unreadable(file, e);
    }
  }

  private static byte[] read(Path file) {
    try {
      return Files.readAllBytes(file);
    } catch (IOException e) {
      throw unreadable(file, e);
    }
  }

  private static IllegalArgumentException unreadable(Path file, Exception cause) {
    return new IllegalArgumentException("cannot read " + file, cause);
  }
}
