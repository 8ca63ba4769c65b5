package quire.client;

import io.grpc.Attributes;
import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer;
import io.grpc.Metadata;
import io.grpc.Status;
import quire.client.Attempts.Reach;

/** Learns from gRPC how far one attempt came. */
final class Trace extends ClientStreamTracer {
  /** The caller's trace, among the options of a call. */
  static final CallOptions.Key<String> PARENT = CallOptions.Key.create("traceparent");

  private static final Metadata.Key<String> TRACEPARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

  private volatile boolean sent;
  private volatile boolean answered;

  /** For the options of the attempt's call. */
  Factory factory() {
    return new Factory() {
      @Override
      public ClientStreamTracer newClientStreamTracer(StreamInfo info, Metadata headers) {
        String parent = info.getCallOptions().getOption(PARENT);
        if (parent != null) {
          headers.put(TRACEPARENT, parent);
        }
        return Trace.this;
      }
    };
  }

  Reach reach() {
    if (!sent) {
      return Reach.NOT_SENT;
    }
    return answered ? Reach.ANSWERED : Reach.SENT;
  }

  /** From here on the request may leave, even once the call is over: it may be in a full buffer. */
  @Override
  public void streamCreated(Attributes transport, Metadata headers) {
    sent = true;
  }

  @Override
  public void inboundTrailers(Metadata trailers) {
    answered = true;
  }

  /** An answer that was good until it could not be read is no refusal. */
  @Override
  public void streamClosed(Status status) {
    answered &= !status.isOk();
  }
}
