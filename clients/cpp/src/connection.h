/// Channels to the servers, and calls on them that are sent again as `Attempts` decides. Must not know any one call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "attempts.h"
#include "quire/client.h"
#include "quire/wire/bookstore.grpc.pb.h"
#include "quire/wire/kv.grpc.pb.h"

namespace quire {

/// A channel to one address, and the stubs on it. It is thrown away if it does not connect, so that the next attempt
/// does not wait for a pause of gRPC's.
struct Lane {
  explicit Lane(std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)), stubs(channel, channel, channel, channel) {}

  std::shared_ptr<grpc::Channel> channel;
  std::tuple<bookstore::BookStore::Stub, bookstore::Admin::Stub, io::grpc::KeyValueService::Stub,
             io::grpc::KeyRangeService::Stub>
      stubs;
};

/// A call that is over without an answer.
struct Failure {
  Verdict verdict = Verdict::kUnreachable;
  Ended ended;
  /// Those that were tried, with commas between.
  std::string addresses;

  /// The addresses, what they did, and the message.
  [[nodiscard]] std::string words() const;
  [[noreturn]] void raise() const;
};

/// What a call that ended with this status is judged by.
Ended ended(const grpc::Status& status, const grpc::ClientContext& context);

template <class Stub, class Request, class Reply>
using Unary = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);
template <class Stub, class Request, class Part>
using Streamed = std::unique_ptr<grpc::ClientReader<Part>> (Stub::*)(grpc::ClientContext*, const Request&);

/// A stream of answers; it is cancelled when it is dropped.
template <class Part>
class Parts {
 public:
  Parts(std::unique_ptr<grpc::ClientContext> context, std::unique_ptr<grpc::ClientReader<Part>> reader,
        std::stop_token stop, std::string addresses)
      : context_(std::move(context)),
        reader_(std::move(reader)),
        stop_(std::move(stop), Cancel{context_.get()}),
        addresses_(std::move(addresses)) {}
  ~Parts() {
    if (!is_finished_) {
      context_->TryCancel();
      finish();
    }
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  /// The next part; none when the server has ended the stream. Throws if it broke.
  bool read(Part& part) {
    if (reader_->Read(&part)) {
      return true;
    }
    if (const auto status = finish(); !status.ok()) {
      Attempts tries(Kind::kRead, std::nullopt, 0, Clock::now());
      tries.next(ended(status, *context_), Clock::now(), 1);
      Failure{.verdict = tries.verdict(), .ended = tries.reason(), .addresses = addresses_}.raise();
    }
    return false;
  }

 private:
  grpc::Status finish() {
    // gRPC gives the status once every part was read.
    for (Part rest; reader_->Read(&rest);) {
    }
    is_finished_ = true;
    return reader_->Finish();
  }

  struct Cancel {
    grpc::ClientContext* context;
    void operator()() const { context->TryCancel(); }
  };

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<Part>> reader_;
  std::stop_callback<Cancel> stop_;
  std::string addresses_;
  bool is_finished_ = false;
};

class Connection {
 public:
  explicit Connection(Options options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Calls until there is an answer, or no attempt is left.
  template <class Stub, class Request, class Reply>
  std::variant<Reply, Failure> try_ask(Kind kind, milliseconds timeout, const Call& call,
                                       Unary<Stub, Request, Reply> method, const Request& request) {
    Reply reply;
    auto failure = attempts(kind, call.timeout.value_or(timeout), call,
                            [&](Lane& lane, std::unique_ptr<grpc::ClientContext>& context) {
                              reply.Clear();
                              return (std::get<Stub>(lane.stubs).*method)(context.get(), request, &reply);
                            });
    if (failure) {
      return std::move(*failure);
    }
    return reply;
  }

  /// As try_ask(); a failure is thrown.
  template <class Stub, class Request, class Reply>
  Reply ask(Kind kind, milliseconds timeout, const Call& call, Unary<Stub, Request, Reply> method,
            const Request& request) {
    auto answer = try_ask(kind, timeout, call, method, request);
    if (const auto* failure = std::get_if<Failure>(&answer)) {
      failure->raise();
    }
    return std::get<Reply>(std::move(answer));
  }

  /// Begins a stream, and reads its first part; nothing if the server ends it without one.
  template <class Stub, class Request, class Part>
  std::unique_ptr<Parts<Part>> begin(const Call& call, Streamed<Stub, Request, Part> method, const Request& request,
                                     Part& first) {
    std::unique_ptr<Parts<Part>> parts;
    auto failure =
        attempts(Kind::kRead, call.timeout, call, [&](Lane& lane, std::unique_ptr<grpc::ClientContext>& context) {
          auto reader = (std::get<Stub>(lane.stubs).*method)(context.get(), request);
          if (reader->Read(&first)) {
            parts = std::make_unique<Parts<Part>>(std::move(context), std::move(reader), call.stop, addresses());
            return grpc::Status();
          }
          return reader->Finish();
        });
    if (failure) {
      failure->raise();
    }
    return parts;
  }

 private:
  using Attempt = std::function<grpc::Status(Lane&, std::unique_ptr<grpc::ClientContext>&)>;

  std::optional<Failure> attempts(Kind kind, std::optional<milliseconds> timeout, const Call& call,
                                  const Attempt& attempt);
  std::variant<std::shared_ptr<Lane>, std::string> ready(Kind kind, Clock::time_point end, const std::stop_token& stop);
  /// The context of an attempt that ends at `end`.
  std::unique_ptr<grpc::ClientContext> begin(Clock::time_point end, const Call& call) const;
  std::shared_ptr<Lane> open(const Address& address) const;
  std::string addresses() const;
  void see_what_has_closed();

  Options options_;
  std::shared_ptr<grpc::ChannelCredentials> tls_;
  std::string authorization_;
  std::vector<std::atomic<std::shared_ptr<Lane>>> lanes_;
  std::atomic<std::size_t> turn_ = 0;
  /// How many wait for an answer now.
  std::atomic<std::size_t> calls_ = 0;
  grpc::CompletionQueue idle_;
};

}  // namespace quire
