#include "bench.h"

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "quire/client.h"
#include "quire/wire/bookstore.grpc.pb.h"

namespace {

namespace bookstore = quire::bookstore;

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kBook = 53477;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// One call with the library.
std::function<void()> with_library(const std::string& address, bool is_buy) {
  const quire::Client client({.addresses = quire::Address::parse_list(address)});
  if (is_buy) {
    return [client] { std::ignore = client.buy(kBook); };
  }
  return [client] { client.lookup(kBook); };
}

/// One call with the generated stub alone, as gRPC's own tutorial has it.
std::function<void()> with_stub(const std::string& address, bool is_buy) {
  const std::shared_ptr<bookstore::BookStore::Stub> stub =
      bookstore::BookStore::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  return [stub, is_buy] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(is_buy ? 30 : 5));
    bookstore::ItemNumberRequest request;
    request.set_id(kBook);
    grpc::Status status;
    if (is_buy) {
      request.set_quantity(1);
      request.set_idempotency_key(quire::random_key());
      bookstore::BuyBookReply reply;
      status = stub->Buy(&context, request, &reply);
    } else {
      bookstore::BookInfoReply reply;
      status = stub->Lookup(&context, request, &reply);
    }
    if (!status.ok()) {
      throw std::runtime_error(status.error_message());
    }
  };
}

}  // namespace

nlohmann::json bench(const std::vector<std::string>& words) {
  const auto& address = words.at(0);
  bool is_buy = false;
  bool is_bare = false;
  int in_flight = 1;
  double seconds = 1;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--bare") {
      is_bare = true;
    } else if (words[i] == "--call") {
      is_buy = words.at(++i) == "buy";
    } else if (words[i] == "--in-flight") {
      in_flight = std::stoi(words.at(++i));
    } else if (words[i] == "--seconds") {
      seconds = std::stod(words.at(++i));
    } else {
      throw std::invalid_argument("there is no flag '" + words[i] + "'");
    }
  }
  const auto call = is_bare ? with_stub(address, is_buy) : with_library(address, is_buy);
  call();
  std::atomic<std::int64_t> calls = 0;
  const auto cpu_before = cpu_seconds();
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(in_flight));
    for (int i = 0; i < in_flight; ++i) {
      threads.emplace_back([&] {
        std::int64_t done = 0;
        for (; Clock::now() < end; ++done) {
          call();
        }
        calls += done;
      });
    }
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  return {{"calls", calls.load()}, {"cpu_seconds", cpu_seconds() - cpu_before}, {"seconds", took.count()}};
}
