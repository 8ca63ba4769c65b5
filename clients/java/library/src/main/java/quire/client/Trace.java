package quire.client;

import io.grpc.Attributes;
import io.grpc.ClientStreamTracer;
import io.grpc.Metadata;
import io.grpc.Status;
import quire.client.Attempts.Reach;

/** Learns from gRPC how far one attempt came. */
final class Trace extends ClientStreamTracer {
  private volatile boolean sent;
  private volatile boolean answered;

  /** For the options of the attempt's call. */
  Factory factory() {
    return new Factory() {
      @Override
      public ClientStreamTracer newClientStreamTracer(StreamInfo info, Metadata headers) {
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
