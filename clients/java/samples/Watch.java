package samples;

import com.google.protobuf.ByteString;
import quire.client.QuireClient;
import quire.client.WatchEvent;
import quire.client.Write;

/** Watches a key, and sees it change. */
public final class Watch {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:10086";
    try (QuireClient client = QuireClient.connect(address);
        var events = client.watch(ByteString.copyFromUtf8("greeting"))) {
      while (events.hasNext()) {
        WatchEvent event = events.next();
        if (event instanceof WatchEvent.Started) {
          System.out.println("watching");
          client.put(Write.of("greeting", "hello"));
        } else if (event instanceof WatchEvent.Put put) {
          System.out.printf("put %s = %s%n", put.key().toStringUtf8(), put.value().toStringUtf8());
          return;
        }
      }
    }
  }
}
