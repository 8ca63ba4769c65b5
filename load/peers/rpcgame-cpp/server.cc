// The game's server on gRPC C++'s callback interface: messages that come early wait in a map. One game for all.
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>

#include <grpcpp/grpcpp.h>

#include "game.h"
#include "rpcgame.grpc.pb.h"

namespace {

struct Call {
  const TryRequest* request;
  TryResponse* response;
  grpc::ServerUnaryReactor* reactor;
};

class Game final : public RPCGame::CallbackService {
  grpc::ServerUnaryReactor* Try(grpc::CallbackServerContext* context, const TryRequest* request,
                                TryResponse* response) override {
    auto* reactor = context->DefaultReactor();
    const uint64_t serial = std::strtoull(request->serial().c_str(), nullptr, 10);
    std::lock_guard<std::mutex> lock(mutex_);
    if (serial != handled_ + 1) {
      early_[serial] = Call{request, response, reactor};
      return reactor;
    }
    Handle(Call{request, response, reactor});
    while (!early_.empty() && early_.begin()->first == handled_ + 1) {
      Handle(early_.extract(early_.begin()).mapped());
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context, const DoneRequest*,
                                 DoneResponse* response) override {
    std::lock_guard<std::mutex> lock(mutex_);
    response->set_client_checksum(client_.Digits());
    response->set_server_checksum(server_.Digits());
    handled_ = 0;
    client_.Clear();
    server_.Clear();
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void Handle(const Call& call) {
    const std::string& name = call.request->name();
    const uint64_t count = std::strtoull(call.request->count().c_str(), nullptr, 10);
    const uint64_t value = Hash(name) + count + handled_++;
    client_.Add(name);
    client_.Add(count);
    server_.Add(value);
    call.response->set_value(std::to_string(value));
    call.reactor->Finish(grpc::Status::OK);
  }

  std::mutex mutex_;
  uint64_t handled_ = 0;
  Checksum client_, server_;
  std::map<uint64_t, Call> early_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string address = argc > 1 ? argv[1] : "127.0.0.1:29381";
  Game game;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&game);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  // Tells the caller which port was chosen if it asked for any.
  std::cout << "listening on " << address.substr(0, address.rfind(':')) << ":" << port << std::endl;
  server->Wait();
}
