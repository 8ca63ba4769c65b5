// The game's client on gRPC C++: ADDRESS FILE N WINDOW. A window of 1 makes blocking calls, one at a time; a wider one
// uses a completion queue.
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "game.h"
#include "rpcgame.grpc.pb.h"

namespace {

struct Pair {
  std::string name;
  uint64_t count;
};

std::vector<Pair> Read(const char* path) {
  std::vector<Pair> pairs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    // The digits right behind the first comma are the count, whatever follows them.
    const auto comma = line.find(',');
    if (comma == std::string::npos) continue;
    uint64_t count = 0;
    const char* const digits = line.data() + comma + 1;
    const auto [end, error] = std::from_chars(digits, line.data() + line.size(), count);
    if (error != std::errc() || end == digits) continue;
    pairs.push_back({line.substr(0, comma), count});
  }
  return pairs;
}

struct Call {
  grpc::ClientContext context;
  TryResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<TryResponse>> reader;
  uint64_t serial = 0;
};

[[noreturn]] void Fail(const grpc::Status& status) {
  std::cerr << "refused: " << status.error_message() << std::endl;
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: rpcgame-client ADDRESS FILE N WINDOW" << std::endl;
    return 2;
  }
  const auto pairs = Read(argv[2]);
  const uint64_t messages = std::strtoull(argv[3], nullptr, 10), window = std::strtoull(argv[4], nullptr, 10);
  if (pairs.empty() || window == 0) return 2;
  auto stub = RPCGame::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  Checksum client, server;
  const auto request = [&](uint64_t serial) {
    const Pair& pair = pairs[(serial - 1) % pairs.size()];
    client.Add(pair.name);
    client.Add(pair.count);
    TryRequest request;
    request.set_serial(std::to_string(serial));
    request.set_name(pair.name);
    request.set_count(std::to_string(pair.count));
    return request;
  };
  const auto started = std::chrono::steady_clock::now();
  if (window == 1) {
    for (uint64_t serial = 1; serial <= messages; ++serial) {
      grpc::ClientContext context;
      TryResponse response;
      const auto status = stub->Try(&context, request(serial), &response);
      if (!status.ok()) Fail(status);
      server.Add(std::strtoull(response.value().c_str(), nullptr, 10));
    }
  } else {
    grpc::CompletionQueue queue;
    std::vector<uint64_t> values(window);
    std::vector<bool> here(window);
    uint64_t sent = 0, hashed = 0;
    while (hashed < messages) {
      while (sent < messages && sent - hashed < window) {
        auto* call = new Call;
        call->serial = ++sent;
        call->reader = stub->AsyncTry(&call->context, request(sent), &queue);
        call->reader->Finish(&call->response, &call->status, call);
      }
      void* tag;
      bool ok;
      if (!queue.Next(&tag, &ok)) return 1;
      const std::unique_ptr<Call> call(static_cast<Call*>(tag));
      if (!call->status.ok()) Fail(call->status);
      values[call->serial % window] = std::strtoull(call->response.value().c_str(), nullptr, 10);
      here[call->serial % window] = true;
      // Values are hashed in the order of the serials.
      while (hashed < sent && here[(hashed + 1) % window]) {
        here[++hashed % window] = false;
        server.Add(values[hashed % window]);
      }
    }
  }
  grpc::ClientContext context;
  DoneResponse sums;
  const auto status = stub->Done(&context, DoneRequest(), &sums);
  if (!status.ok()) Fail(status);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const bool match = sums.client_checksum() == client.Digits() && sums.server_checksum() == server.Digits();
  std::cout << "client's checksums: client " << client.Digits() << ", server " << server.Digits() << "\n"
            << "server's checksums: client " << sums.client_checksum() << ", server " << sums.server_checksum() << "\n"
            << (match ? "they match" : "THEY DO NOT MATCH") << "\n"
            << messages << " messages in " << seconds << " s: " << static_cast<uint64_t>(messages / seconds)
            << " a second" << std::endl;
  return match ? 0 : 1;
}
