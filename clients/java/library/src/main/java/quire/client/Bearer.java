package quire.client;

import io.grpc.CallCredentials;
import io.grpc.Metadata;
import java.util.concurrent.Executor;

/** Shows a token with each call. */
final class Bearer extends CallCredentials {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final String value;

  Bearer(String token) {
    if (token.isEmpty()) {
      throw new IllegalArgumentException("the token is empty");
    }
    if (!token.chars().allMatch(character -> character >= ' ' && character <= '~')) {
      throw new IllegalArgumentException("the token has characters that no token has");
    }
    value = "Bearer " + token;
  }

  @Override
  public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier to) {
    Metadata headers = new Metadata();
    headers.put(AUTHORIZATION, value);
    to.apply(headers);
  }
}
