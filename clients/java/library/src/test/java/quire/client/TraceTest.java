package quire.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer.StreamInfo;
import io.grpc.Metadata;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;

class TraceTest {
  private static final String PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

  private static String sent(String name, String traceparent, String tracestate) {
    CallOptions options = Trace.with(CallOptions.DEFAULT, traceparent, tracestate);
    StreamInfo info = StreamInfo.newBuilder().setCallOptions(options).build();
    Metadata headers = new Metadata();
    new Trace().factory().newClientStreamTracer(info, headers);
    return headers.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
  }

  private static String members(int count) {
    return String.join(",", Collections.nCopies(count, "a=1"));
  }

  @Test
  void aValidStateIsSentAsItIs() {
    String longest = "a=" + "1".repeat(254) + ",b=" + "2".repeat(253);
    for (String state :
        List.of("rojo=00f067aa0ba902b7", "1t@s=a b!~ , b=c", members(32), longest)) {
      assertEquals(state, sent("tracestate", PARENT, state));
    }
    String later = PARENT.replaceFirst("00", "cc") + "-more";
    assertEquals("a=1", sent("tracestate", later, "a=1"));
  }

  @Test
  void anInvalidStateIsLeftOut() {
    String tooLong = "a=" + "1".repeat(254) + ",b=" + "2".repeat(254);
    for (String state :
        List.of("", "a", "a=", "A=1", "=1", "a=b=c", "a=1,b", "a=1,\tb=2", members(33), tooLong)) {
      assertEquals(null, sent("tracestate", PARENT, state), state);
      assertEquals(PARENT, sent("traceparent", PARENT, state), state);
    }
  }

  @Test
  void noStateIsSentWithoutAValidParent() {
    String zeros = "0".repeat(32);
    for (String parent :
        List.of(
            PARENT.toUpperCase(Locale.ROOT),
            PARENT + "-more",
            PARENT.replaceFirst("00", "ff"),
            PARENT.replaceFirst("[^-]{32}", zeros),
            PARENT.replaceFirst("[^-]{16}-01", "0".repeat(16) + "-01"),
            "no trace")) {
      assertEquals(null, sent("tracestate", parent, "a=1"), parent);
      assertEquals(parent, sent("traceparent", parent, "a=1"));
    }
    assertEquals(null, sent("traceparent", "", "a=1"));
    assertEquals(null, sent("tracestate", "", "a=1"));
  }
}
