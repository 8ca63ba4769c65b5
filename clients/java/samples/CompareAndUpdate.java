package samples;

import com.google.protobuf.ByteString;
import quire.client.CreateOutcome;
import quire.client.QuireClient;
import quire.client.UpdateOutcome;
import quire.client.Write;

/** Updates an entry only if no one else has changed it since it was read. */
public final class CompareAndUpdate {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address)) {
      if (client.create(Write.of("counter", "1")) instanceof CreateOutcome.Created) {
        System.out.println("created 1");
      }
      long version = client.get(ByteString.copyFromUtf8("counter")).orElseThrow().version();
      for (String value : new String[] {"2", "3"}) {
        UpdateOutcome outcome = client.update(Write.of("counter", value).expectedVersion(version));
        if (outcome instanceof UpdateOutcome.Updated) {
          System.out.println("updated " + value);
        } else if (outcome instanceof UpdateOutcome.AnotherVersion) {
          System.out.println("another version: read again");
        } else if (outcome instanceof UpdateOutcome.NoSuchKey) {
          System.out.println("no such key");
        }
      }
    }
  }
}
