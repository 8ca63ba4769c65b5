// The arena's contract on gRPC C++: the asynchronous interface with a thread and a completion queue for the one core, as
// its performance guide advises; streams on the callback interface.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include "benchmark.grpc.pb.h"

namespace {

using benchmark::BenchmarkService;

// 64 MiB: above what any load here has in flight.
constexpr int kWindow = 1 << 26;
constexpr int kMessageBytesMax = 1 << 23;
// Calls of a method that are ready to be taken.
constexpr int kWaiting = 1024;

// GetSum, Echo and Ingest come through the completion queue, the streams through callbacks.
using Service = BenchmarkService::WithAsyncMethod_GetSum<BenchmarkService::WithAsyncMethod_Echo<
    BenchmarkService::WithAsyncMethod_Ingest<BenchmarkService::WithCallbackMethod_StreamSum<
        BenchmarkService::WithCallbackMethod_Count<BenchmarkService::Service>>>>>;

class Sums final : public grpc::ServerWriteReactor<benchmark::SumReply> {
 public:
  explicit Sums(const benchmark::StreamRequest& request)
      : next_(request.a() + request.b()), end_(next_ + std::max(request.count(), 0)) {
    Write();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Write();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Write() {
    if (next_ == end_) {
      Finish(grpc::Status::OK);
      return;
    }
    reply_.set_result(next_++);
    // Not with set_buffer_hint(): streams that compete for a connection then wait for ever.
    StartWrite(&reply_);
  }
  int next_, end_;
  benchmark::SumReply reply_;
};

class Counter final : public grpc::ServerReadReactor<benchmark::SumRequest> {
 public:
  explicit Counter(benchmark::CountReply* reply) : reply_(reply) { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      reply_->set_messages(messages_);
      reply_->set_sum(sum_);
      Finish(grpc::Status::OK);
      return;
    }
    ++messages_;
    sum_ += static_cast<int64_t>(request_.a()) + request_.b();
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  benchmark::SumRequest request_;
  benchmark::CountReply* reply_;
  uint64_t messages_ = 0;
  int64_t sum_ = 0;
};

class Arena final : public Service {
  grpc::ServerWriteReactor<benchmark::SumReply>* StreamSum(grpc::CallbackServerContext*,
                                                           const benchmark::StreamRequest* request) override {
    return new Sums(*request);
  }
  grpc::ServerReadReactor<benchmark::SumRequest>* Count(grpc::CallbackServerContext*,
                                                        benchmark::CountReply* reply) override {
    return new Counter(reply);
  }
};

void GetSum(const benchmark::SumRequest& request, benchmark::SumReply* reply) {
  reply->set_result(request.a() + request.b());
}

void Echo(const benchmark::Blob& request, benchmark::Blob* reply) { *reply->mutable_data() = request.data(); }

void Ingest(const benchmark::LogBatch& request, benchmark::IngestReply* reply) {
  uint64_t text = 0, label = 0, errors = 0, lines = 0, latest = 0;
  for (const auto& record : request.records()) {
    errors += record.severity() == benchmark::SEVERITY_ERROR;
    latest = std::max<uint64_t>(latest, record.time_ns());
    text += record.service().size() + record.instance().size() + record.message().size() + record.trace_id().size() +
            record.span_id().size() + record.source().file().size() + record.source().function().size();
    for (const auto& [key, value] : record.labels()) label += key.size() + value.size();
    lines += record.source().line();
  }
  reply->set_records(request.records_size());
  reply->set_text_bytes(text);
  reply->set_label_bytes(label);
  reply->set_errors(errors);
  reply->set_lines(lines);
  reply->set_latest_ns(latest);
}

// What a tag of the completion queue points at.
struct Tag {
  virtual ~Tag() = default;
  virtual void Proceed(bool ok) = 0;
};

// A place for one call after another of a unary method.
template <typename Request, typename Reply>
class Unary final : public Tag {
 public:
  using Ask = void (Arena::*)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Reply>*,
                              grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);
  using Handle = void (*)(const Request&, Reply*);

  Unary(Arena* service, grpc::ServerCompletionQueue* queue, Ask ask, Handle handle)
      : service_(service), queue_(queue), ask_(ask), handle_(handle) {
    Wait();
  }

  void Proceed(bool ok) override {
    if (!answering_) {
      if (!ok) return;
      answering_ = true;
      handle_(call_->request, &call_->reply);
      call_->writer.Finish(call_->reply, grpc::Status::OK, this);
    } else {
      Wait();
    }
  }

 private:
  struct Call {
    grpc::ServerContext context;
    Request request;
    Reply reply;
    grpc::ServerAsyncResponseWriter<Reply> writer{&context};
  };

  void Wait() {
    answering_ = false;
    call_ = std::make_unique<Call>();
    (service_->*ask_)(&call_->context, &call_->request, &call_->writer, queue_, queue_, this);
  }

  Arena* service_;
  grpc::ServerCompletionQueue* queue_;
  Ask ask_;
  Handle handle_;
  bool answering_ = false;
  std::unique_ptr<Call> call_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: arena-cpp LISTEN" << std::endl;
    return 2;
  }
  Arena arena;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindow);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.RegisterService(&arena);
  auto queue = builder.AddCompletionQueue();
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  for (int i = 0; i < kWaiting; ++i) {
    new Unary<benchmark::SumRequest, benchmark::SumReply>(&arena, queue.get(), &Arena::RequestGetSum, GetSum);
    new Unary<benchmark::Blob, benchmark::Blob>(&arena, queue.get(), &Arena::RequestEcho, Echo);
    new Unary<benchmark::LogBatch, benchmark::IngestReply>(&arena, queue.get(), &Arena::RequestIngest, Ingest);
  }
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) static_cast<Tag*>(tag)->Proceed(ok);
}
