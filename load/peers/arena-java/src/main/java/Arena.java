import benchmark.BenchmarkServiceGrpc;
import benchmark.Blob;
import benchmark.CountReply;
import benchmark.IngestReply;
import benchmark.LogBatch;
import benchmark.LogRecord;
import benchmark.Severity;
import benchmark.StreamRequest;
import benchmark.SumReply;
import benchmark.SumRequest;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerSocketChannel;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;

/** The arena's contract on grpc-java: one event loop, which handlers run on. */
public final class Arena extends BenchmarkServiceGrpc.BenchmarkServiceImplBase {
  /** 64 MiB: above what any load here has in flight. */
  private static final int WINDOW = 1 << 26;
  private static final int MESSAGE_BYTES_MAX = 1 << 23;

  @Override
  public void getSum(SumRequest request, StreamObserver<SumReply> out) {
    out.onNext(SumReply.newBuilder().setResult(request.getA() + request.getB()).build());
    out.onCompleted();
  }

  @Override
  public void echo(Blob request, StreamObserver<Blob> out) {
    out.onNext(request);
    out.onCompleted();
  }

  @Override
  public void streamSum(StreamRequest request, StreamObserver<SumReply> observer) {
    ServerCallStreamObserver<SumReply> out = (ServerCallStreamObserver<SumReply>) observer;
    int first = request.getA() + request.getB();
    int[] at = {0};
    boolean[] done = {false};
    Runnable send = () -> {
      while (!done[0] && out.isReady()) {
        if (at[0] == request.getCount()) {
          done[0] = true;
          out.onCompleted();
        } else {
          out.onNext(SumReply.newBuilder().setResult(first + at[0]++).build());
        }
      }
    };
    out.setOnReadyHandler(send);
    send.run();
  }

  @Override
  public StreamObserver<SumRequest> count(StreamObserver<CountReply> out) {
    return new StreamObserver<>() {
      private long messages;
      private long sum;

      @Override
      public void onNext(SumRequest request) {
        messages++;
        sum += (long) request.getA() + request.getB();
      }

      @Override
      public void onError(Throwable error) {}

      @Override
      public void onCompleted() {
        out.onNext(CountReply.newBuilder().setMessages(messages).setSum(sum).build());
        out.onCompleted();
      }
    };
  }

  @Override
  public void ingest(LogBatch request, StreamObserver<IngestReply> out) {
    long text = 0, label = 0, errors = 0, lines = 0, latest = 0;
    for (LogRecord record : request.getRecordsList()) {
      if (record.getSeverity() == Severity.SEVERITY_ERROR) errors++;
      latest = Math.max(latest, record.getTimeNs());
      text += bytes(record.getService()) + bytes(record.getInstance()) + bytes(record.getMessage());
      text += bytes(record.getTraceId()) + bytes(record.getSpanId());
      text += bytes(record.getSource().getFile()) + bytes(record.getSource().getFunction());
      for (var entry : record.getLabelsMap().entrySet()) label += bytes(entry.getKey()) + bytes(entry.getValue());
      lines += record.getSource().getLine();
    }
    IngestReply.Builder reply = IngestReply.newBuilder().setRecords(request.getRecordsCount()).setTextBytes(text);
    reply.setLabelBytes(label).setErrors(errors).setLines(lines).setLatestNs(latest);
    out.onNext(reply.build());
    out.onCompleted();
  }

  /** The loads' texts are ASCII, of which each character is a byte. */
  private static int bytes(String text) {
    return text.length();
  }

  public static void main(String[] arguments) throws Exception {
    String[] address = arguments[0].split(":");
    EventLoopGroup loop = new EpollEventLoopGroup(1);
    Server server = NettyServerBuilder.forAddress(new InetSocketAddress(address[0], Integer.parseInt(address[1])))
        .bossEventLoopGroup(loop)
        .workerEventLoopGroup(loop)
        .channelType(EpollServerSocketChannel.class)
        .directExecutor()
        .initialFlowControlWindow(WINDOW)
        .maxInboundMessageSize(MESSAGE_BYTES_MAX)
        .addService(new Arena())
        .build()
        .start();
    server.awaitTermination();
  }
}
