#include "connection.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string_view>

namespace quire {
namespace {

using Code = grpc::StatusCode;

/// How often a wait for a connection looks for a stop, or at the next of several addresses.
constexpr milliseconds kLook{10};
/// The time for the cause of a failure, which gRPC gives at once.
constexpr milliseconds kCauseMax{1000};

gpr_timespec from_now(Clock::time_point end, Clock::time_point now) {
  auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - now);
  // From 1 s on, gRPC sends the server a deadline in tens of milliseconds, rounded up twice; it must not be later.
  if (left > std::chrono::seconds(1)) {
    left -= milliseconds(2);
  }
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(left.count(), GPR_TIMESPAN));
}

/// True if gRPC takes the value of a field of metadata: another would end the program.
bool is_sendable(std::string_view field) {
  constexpr std::size_t kBytesMax = 512;
  return !field.empty() && field.size() <= kBytesMax && field.front() != ' ' && field.back() != ' ' &&
         std::ranges::all_of(field, [](char byte) { return ' ' <= byte && byte <= '~'; });
}

double jitter() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.8, 1.2)(random);
}

/// True if gRPC made the status, of a stream or an answer that broke, with a code that servers refuse with as well.
/// Only its message differs from a server's.
bool is_made_here(const std::string& message) {
  return message.starts_with("Received RST_STREAM") || message == "No message returned for unary request";
}

/// True if gRPC's message is that of a broken connection, for which it has no code of its own.
bool is_connections(const std::string& message) {
  static constexpr std::array kWords = {"Socket closed", "Connection reset", "Broken pipe", "GOAWAY",
                                        "keepalive",     "Endpoint",         "Transport",   "Stream removed"};
  return std::ranges::any_of(kWords, [&](const char* words) { return message.find(words) != std::string::npos; });
}

/// Why a channel does not connect, in gRPC's words. A call on it ends at once with them; the server gets it only if it
/// is back meanwhile.
std::string cause(Lane& lane, Clock::time_point end) {
  grpc::ClientContext context;
  const auto now = Clock::now();
  context.set_deadline(from_now(std::min(end, now + kCauseMax), now));
  bookstore::HelloReply reply;
  const auto status = std::get<bookstore::BookStore::Stub>(lane.stubs).Hello(&context, {}, &reply);
  auto words = status.error_code() == Code::UNAVAILABLE ? status.error_message() : std::string();
  static constexpr std::string_view kBefore = "last error: ";
  if (const auto at = words.rfind(kBefore); at != std::string::npos) {
    words.erase(0, at + kBefore.size());
  }
  if (words.find("CERTIFICATE_VERIFY_FAILED") != std::string::npos ||
      words.find("certificate verify failed") != std::string::npos) {
    words.insert(0, "the server's certificate is not trusted: ");
  }
  return words;
}

void pause(Clock::duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nothing;
  std::unique_lock lock(mutex);
  nothing.wait_for(lock, stop, time, [] { return false; });
}

}  // namespace

std::string Failure::words() const {
  return addresses + ' ' + ended.did + (ended.message.empty() ? "" : ": " + ended.message);
}

void Failure::raise() const {
  switch (verdict) {
    case Verdict::kRefused:
      throw Refused(ended.code, ended.message.empty() ? std::string(code_name(ended.code)) : ended.message,
                    ended.message);
    case Verdict::kUnknown:
      throw OutcomeUnknown(ended.code, words(), ended.message);
    case Verdict::kUnreachable:
      break;
  }
  throw Unreachable(ended.code, words(), ended.message, ended.was_sent);
}

Ended ended(const grpc::Status& status, const grpc::ClientContext& context) {
  Ended ended{
      .code = status.error_code(), .message = status.error_message(), .was_sent = true, .did = "did not answer"};
  ended.is_broken = is_made_here(ended.message);
  if (ended.code == Code::DEADLINE_EXCEEDED && ended.message == "Deadline Exceeded") {
    ended.message = "time is up";
  } else if (ended.code == Code::CANCELLED && (ended.message == "CANCELLED" || ended.message == "Cancelled")) {
    ended.message = "interrupted";
  } else if (!ended.is_broken && !is_connections(ended.message)) {
    ended.did = "answered " + std::string(code_name(ended.code));
  }
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto pushback = trailers.find("grpc-retry-pushback-ms"); pushback != trailers.end()) {
    ended.pushback.emplace(pushback->second.data(), pushback->second.size());
  }
  return ended;
}

Connection::Connection(Options options) : options_(std::move(options)), lanes_(options_.addresses.size()) {
  if (options_.addresses.empty()) {
    throw std::invalid_argument("there is no address; give one at least");
  }
  if (options_.tls.certificate.empty() != options_.tls.key.empty()) {
    throw std::invalid_argument("a certificate and its private key belong together; give both or neither");
  }
  if (!std::ranges::all_of(options_.token, [](char each) { return each >= ' ' && each <= '~'; })) {
    throw std::invalid_argument("the token has characters that no token has");
  }
  if (!options_.token.empty()) {
    authorization_ = "Bearer " + options_.token;
  }
  if (std::ranges::any_of(options_.addresses, &Address::tls)) {
    tls_ = grpc::SslCredentials({.pem_root_certs = options_.tls.roots,
                                 .pem_private_key = options_.tls.key,
                                 .pem_cert_chain = options_.tls.certificate});
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i] = open(options_.addresses[i]);
  }
}

Connection::~Connection() {
  idle_.Shutdown();
  void* tag = nullptr;
  bool is_ok = false;
  while (idle_.Next(&tag, &is_ok)) {
  }
}

std::shared_ptr<Lane> Connection::open(const Address& address) const {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix("quire-client-cpp/0.1.0");
  // A value of 1 GiB, the largest that a server can be set to keep, with what is around it.
  arguments.SetMaxReceiveMessageSize((1 << 30) + (1 << 20));
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // A purchase that waits sends nothing between its pings.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // For one of several addresses that comes back while others answer.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // A new channel is a new connection, without the pauses of the one before.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto target = "dns:///" + address.host + ':' + std::to_string(address.port);
  return std::make_shared<Lane>(
      grpc::CreateCustomChannel(target, address.tls ? tls_ : grpc::InsecureChannelCredentials(), arguments));
}

/// gRPC reads from its connections while a call waits. This reads what came since the last one, so that a connection
/// that was closed meanwhile is not taken for one that is ready.
void Connection::see_what_has_closed() {
  if (calls_ > 0) {
    return;
  }
  void* tag = nullptr;
  bool is_ok = false;
  idle_.AsyncNext(&tag, &is_ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
}

/// The addresses as text.
std::string Connection::addresses() const {
  std::string all;
  for (const auto& address : options_.addresses) {
    all += (all.empty() ? "" : ",") + address.host + ':' + std::to_string(address.port);
  }
  return all;
}

/// A lane on whose connection the server has spoken: gRPC calls it ready after the server's SETTINGS. The cause if
/// every address fails, or the time is over.
std::variant<std::shared_ptr<Lane>, std::string> Connection::ready(Kind kind, Clock::time_point end,
                                                                   const std::stop_token& stop) {
  if (kind != Kind::kRead) {
    see_what_has_closed();
  }
  const auto count = lanes_.size();
  const auto first = turn_.fetch_add(1, std::memory_order_relaxed);
  while (true) {
    std::shared_ptr<Lane> waiting;
    auto state = GRPC_CHANNEL_IDLE;
    for (std::size_t i = 0; i < count; ++i) {
      auto lane = lanes_[(first + i) % count].load();
      const auto its_state = lane->channel->GetState(/*try_to_connect=*/true);
      if (its_state == GRPC_CHANNEL_READY) {
        return lane;
      }
      if (its_state != GRPC_CHANNEL_TRANSIENT_FAILURE && its_state != GRPC_CHANNEL_SHUTDOWN) {
        waiting = std::move(lane);
        state = its_state;
      }
    }
    const auto now = Clock::now();
    if (!waiting || now >= end || stop.stop_requested()) {
      break;
    }
    const auto look = count > 1 || stop.stop_possible() ? std::min(end, now + kLook) : end;
    waiting->channel->WaitForStateChange(state, from_now(look, now));
  }
  std::string why;
  for (std::size_t i = 0; i < count; ++i) {
    auto tried = lanes_[i].load();
    auto state = tried->channel->GetState(/*try_to_connect=*/false);
    if (why.empty() && state == GRPC_CHANNEL_TRANSIENT_FAILURE && !stop.stop_requested()) {
      why = cause(*tried, end);
      state = tried->channel->GetState(/*try_to_connect=*/false);
    }
    if (state == GRPC_CHANNEL_READY) {
      return tried;
    }
    lanes_[i].compare_exchange_strong(tried, open(options_.addresses[i]));
  }
  return why.empty() ? "no server answered in time" : why;
}

std::unique_ptr<grpc::ClientContext> Connection::begin(Clock::time_point end, const Call& call) const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (end != Clock::time_point::max()) {
    context->set_deadline(from_now(end, Clock::now()));
  }
  if (!authorization_.empty()) {
    context->AddMetadata("authorization", authorization_);
  }
  if (is_sendable(call.traceparent)) {
    context->AddMetadata("traceparent", call.traceparent);
    if (is_sendable(call.tracestate)) {
      context->AddMetadata("tracestate", call.tracestate);
    }
  }
  return context;
}

std::optional<Failure> Connection::attempts(Kind kind, std::optional<milliseconds> timeout, const Call& call,
                                            const Attempt& attempt) {
  const auto& stop = call.stop;
  if (timeout && *timeout < milliseconds(1)) {
    throw std::invalid_argument("the timeout is " + std::to_string(timeout->count()) + " ms; it must be 1 ms at least");
  }
  Attempts tries(kind, timeout, options_.retries, Clock::now());
  while (true) {
    const auto bounds = tries.attempt(Clock::now());
    const auto found = ready(kind, bounds.connected, stop);
    Ended last;
    if (const auto* why = std::get_if<std::string>(&found)) {
      last.message = *why;
    } else {
      auto context = begin(bounds.end, call);
      const std::stop_callback cancel(stop, [&to = *context] { to.TryCancel(); });
      ++calls_;
      const auto status = attempt(*std::get<std::shared_ptr<Lane>>(found), context);
      --calls_;
      if (status.ok()) {
        return std::nullopt;
      }
      last = ended(status, *context);
    }
    const auto pause_now = tries.next(std::move(last), Clock::now(), jitter());
    if (pause_now) {
      pause(*pause_now, stop);
      if (stop.stop_requested()) {
        tries.interrupt();
      }
    }
    if (!pause_now || stop.stop_requested()) {
      return Failure{.verdict = tries.verdict(), .ended = tries.reason(), .addresses = addresses()};
    }
  }
}

}  // namespace quire
