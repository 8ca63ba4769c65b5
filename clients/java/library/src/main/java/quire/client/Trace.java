package quire.client;

import io.grpc.Attributes;
import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.regex.Pattern;
import quire.client.Attempts.Reach;

/** Sends the caller's trace with one attempt, and records how far the attempt came. */
final class Trace extends ClientStreamTracer {
  // The fields of W3C's Trace Context, among the options of a call; never changed once there.
  private static final CallOptions.Key<Metadata> FIELDS =
      CallOptions.Key.createWithDefault("trace", new Metadata());

  private static final Metadata.Key<String> TRACEPARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TRACESTATE =
      Metadata.Key.of("tracestate", Metadata.ASCII_STRING_MARSHALLER);
  // Others end a call.
  private static final Pattern SENDABLE = Pattern.compile("[!-~](?:[ -~]{0,510}[!-~])?");

  private volatile boolean sent;
  private volatile boolean answered;

  /** The options with the caller's trace; what cannot be sent is left out, as is a state alone. */
  static CallOptions with(CallOptions options, String traceparent, String tracestate) {
    Metadata fields = new Metadata();
    if (SENDABLE.matcher(traceparent).matches()) {
      fields.put(TRACEPARENT, traceparent);
      if (SENDABLE.matcher(tracestate).matches()) {
        fields.put(TRACESTATE, tracestate);
      }
    }
    return options.withOption(FIELDS, fields);
  }

  /** For the options of the attempt's call. */
  Factory factory() {
    return new Factory() {
      @Override
      public ClientStreamTracer newClientStreamTracer(StreamInfo info, Metadata headers) {
        headers.merge(info.getCallOptions().getOption(FIELDS));
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
