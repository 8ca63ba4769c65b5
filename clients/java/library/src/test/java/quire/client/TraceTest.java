package quire.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer.StreamInfo;
import io.grpc.Metadata;
import java.util.List;
import org.junit.jupiter.api.Test;

class TraceTest {
  private static final String LONG = "1".repeat(512);

  private static String sent(String name, String traceparent, String tracestate) {
    CallOptions options = Trace.with(CallOptions.DEFAULT, traceparent, tracestate);
    StreamInfo info = StreamInfo.newBuilder().setCallOptions(options).build();
    Metadata headers = new Metadata();
    new Trace().factory().newClientStreamTracer(info, headers);
    return headers.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
  }

  @Test
  void whatCanBeSentIsSentAsItIs() {
    for (String field : List.of("a=1, b=2", "a", LONG)) {
      assertEquals(field, sent("traceparent", field, field));
      assertEquals(field, sent("tracestate", field, field));
    }
  }

  @Test
  void whatCannotBeSentIsLeftOut() {
    for (String field : List.of("", " a=1", "a=1 ", "a=1,\tb=2", "a=\u00fc", LONG + "1")) {
      assertEquals(null, sent("tracestate", "parent", field), field);
      assertEquals("parent", sent("traceparent", "parent", field), field);
      assertEquals(null, sent("traceparent", field, "a=1"), field);
      assertEquals(null, sent("tracestate", field, "a=1"), field);
    }
  }
}
