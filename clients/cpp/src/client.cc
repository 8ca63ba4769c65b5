#include "quire/client.h"

#include <sys/random.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "connection.h"
#include "wire.h"

namespace quire {
namespace {

using io::grpc::KeyRangeService;
using io::grpc::KeyValueService;
using Shop = bookstore::BookStore::Stub;
using Admin = bookstore::Admin::Stub;
using Code = grpc::StatusCode;

constexpr milliseconds kRead{5'000};
constexpr milliseconds kPurchase{30'000};
constexpr milliseconds kWrite{5'000};
/// The server's own default; named, because a search without it is for the whole topic in one message.
constexpr std::int32_t kPageSize = 1'000;
constexpr std::size_t kKeyBytesMax = 64;
constexpr std::size_t kRandomBytes = 16;

void check_positive(std::string_view what, std::int64_t number) {
  if (number < 1) {
    throw std::invalid_argument(std::string(what) + " is " + std::to_string(number) +
                                "; it must be a whole number from 1");
  }
}

void check_key(std::string_view key) {
  if (key.empty() || key.size() > kKeyBytesMax) {
    throw std::invalid_argument("the idempotency key has " + std::to_string(key.size()) +
                                " bytes; it must have 1 to 64");
  }
}

bookstore::ReservationRequest reservation(const std::string& key) {
  check_key(key);
  bookstore::ReservationRequest request;
  request.set_idempotency_key(key);
  return request;
}

template <class Request>
Request ordered(std::int32_t id, const Order& order) {
  check_positive("id", id);
  check_positive("quantity", order.quantity);
  Request request;
  request.set_id(id);
  request.set_quantity(order.quantity);
  request.set_idempotency_key(order.key ? *order.key : random_key());
  check_key(request.idempotency_key());
  return request;
}

/// Sends a call that its key makes happen once. What is not known at the end is Unknown.
template <class Result, class Stub, class Request, class Reply>
Result ask_once(Connection& connection, const Call& call, Unary<Stub, Request, Reply> method, const Request& request) {
  auto answer = connection.try_ask(Kind::kPurchase, kPurchase, call, method, request);
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    if (failure->verdict != Verdict::kUnknown) {
      failure->raise();
    }
    Result result;
    result.outcome = Unknown{.code = failure->ended.code, .message = failure->words()};
    result.key = request.idempotency_key();
    return result;
  }
  return from_wire(std::get<Reply>(answer), request.idempotency_key());
}

std::uint64_t checked_ttl(milliseconds ttl) {
  if (ttl.count() < 0) {
    throw std::invalid_argument("the time to live is " + std::to_string(ttl.count()) + " ms; it must not be negative");
  }
  return static_cast<std::uint64_t>(ttl.count());
}

template <class Wire>
std::optional<milliseconds> time_left(const Wire& entry) {
  return entry.has_time_to_live_ms() ? std::optional(milliseconds{static_cast<std::int64_t>(entry.time_to_live_ms())})
                                     : std::nullopt;
}

/// Pages that are asked for with the token of the page before.
template <class T, class Stub, class Request, class Reply, class Wire>
Listing<T> pages(std::shared_ptr<Connection> connection, Unary<Stub, Request, Reply> method, Request first, Call call,
                 google::protobuf::RepeatedPtrField<Wire>* (Reply::*items)()) {
  return Listing<T>([connection = std::move(connection), method, request = std::move(first), call = std::move(call),
                     items, is_over = false](std::string& message) mutable -> std::optional<std::vector<T>> {
    if (is_over) {
      return std::nullopt;
    }
    auto reply = connection->ask(Kind::kRead, kRead, call, method, request);
    request.set_page_token(std::move(*reply.mutable_next_page_token()));
    is_over = request.page_token().empty();
    if constexpr (requires { reply.message(); }) {
      if (!reply.message().empty()) {
        message = std::move(*reply.mutable_message());
      }
    }
    return from_wire<T>(*(reply.*items)());
  });
}

/// The parts of a stream that begins when the first is read.
template <class T, class Stub, class Request, class Part>
Listing<T> stream(std::shared_ptr<Connection> connection, Streamed<Stub, Request, Part> method, Request request,
                  Call call) {
  // A function can be copied, and a stream cannot.
  std::shared_ptr<Parts<Part>> parts;
  return Listing<T>([connection = std::move(connection), method, request = std::move(request), call = std::move(call),
                     parts](std::string& /*message*/) mutable -> std::optional<std::vector<T>> {
    Part part;
    if (parts ? !parts->read(part) : !(parts = connection->begin(call, method, request, part))) {
      return std::nullopt;
    }
    std::vector<T> items;
    items.push_back(from_wire(part));
    return items;
  });
}

/// Whether the store refused a write with this code, which is an outcome.
bool is_outcome(const Failure& failure, Code code) {
  return failure.verdict == Verdict::kRefused && failure.ended.code == code;
}

}  // namespace

std::string random_key() {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, kRandomBytes> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    throw std::system_error(errno, std::generic_category(), "the system gives no random bytes");
  }
  std::string key;
  key.reserve(2 * bytes.size());
  for (const unsigned byte : bytes) {
    key += kDigits[byte >> 4U];
    key += kDigits[byte & 0xfU];
  }
  return key;
}

std::string_view code_name(Code code) noexcept {
  static constexpr std::array<std::string_view, 17> kNames = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto number = static_cast<std::size_t>(code);
  return number < kNames.size() ? kNames[number] : "UNKNOWN";
}

Client::Client(Options options) : connection_(std::make_shared<Connection>(std::move(options))) {}

std::string Client::ping(const Call& call) const {
  bookstore::HelloRequest request;
  request.set_name("quire client");
  auto reply = connection_->ask(Kind::kRead, kRead, call, &Shop::Hello, request);
  return std::move(*reply.mutable_hello_message());
}

Listing<Book> Client::search(std::string topic, std::int32_t page_size, Call call) const {
  if (page_size < 0) {
    check_positive("page_size", page_size);
  }
  bookstore::BookTopicRequest request;
  request.set_topic(std::move(topic));
  request.set_page_size(page_size);
  std::shared_ptr<Parts<bookstore::BookListReply>> parts;
  std::optional<Listing<Book>> rest;
  return Listing<Book>([connection = connection_, request, call = std::move(call), parts,
                        rest](std::string& message) mutable -> std::optional<std::vector<Book>> {
    bookstore::BookListReply part;
    try {
      if (!rest &&
          (parts ? !parts->read(part) : !(parts = connection->begin(call, &Shop::SearchStream, request, part)))) {
        return std::nullopt;
      }
    } catch (const Fault& fault) {
      // Without streams, or after a break, the rest comes page by page.
      if (parts ? request.page_token().empty() : fault.code() != Code::UNIMPLEMENTED) {
        throw;
      }
      request.set_page_size(request.page_size() == 0 ? kPageSize : request.page_size());
      rest = pages<Book>(connection, &Shop::Search, request, call, &bookstore::BookListReply::mutable_books);
    }
    if (rest) {
      auto page = rest->next_page();
      message = rest->message();
      return page;
    }
    message = std::move(*part.mutable_message());
    request.set_page_token(part.next_page_token());
    return from_wire<Book>(*part.mutable_books());
  });
}

Listing<Topic> Client::topics(std::string near, Call call) const {
  bookstore::ListTopicsRequest request;
  request.set_near(std::move(near));
  return pages<Topic>(connection_, &Shop::ListTopics, std::move(request), std::move(call),
                      &bookstore::ListTopicsReply::mutable_topics);
}

Lookup Client::lookup(std::int32_t id, const Call& call) const {
  check_positive("id", id);
  bookstore::ItemNumberRequest request;
  request.set_id(id);
  auto reply = connection_->ask(Kind::kRead, kRead, call, &Shop::Lookup, request);
  return {.book = reply.has_book() ? std::optional(from_wire(*reply.mutable_book())) : std::nullopt,
          .message = std::move(*reply.mutable_message())};
}

Purchase Client::buy(std::int32_t id, const Order& order, const Call& call) const {
  return ask_once<Purchase>(*connection_, call, &Shop::Buy, ordered<bookstore::ItemNumberRequest>(id, order));
}

ReceiptLookup Client::receipt(std::int64_t number, const std::string& key, const Call& call) const {
  check_positive("number", number);
  check_key(key);
  bookstore::ReceiptRequest request;
  request.set_number(number);
  request.set_idempotency_key(key);
  auto reply = connection_->ask(Kind::kRead, kRead, call, &Shop::Receipt, request);
  ReceiptLookup found{.message = std::move(*reply.mutable_message())};
  if (reply.success()) {
    found.receipt = {.text = std::move(*reply.mutable_receipt()), .log_key = std::move(*reply.mutable_log_key())};
  }
  return found;
}

Reservation Client::reserve(std::int32_t id, const Order& order, std::optional<std::chrono::seconds> time,
                            const Call& call) const {
  auto request = ordered<bookstore::ReserveRequest>(id, order);
  if (time) {
    if (time->count() < 1 || time->count() > std::numeric_limits<std::int32_t>::max()) {
      throw std::invalid_argument("the time is " + std::to_string(time->count()) + " s; it must be from 1 s");
    }
    request.set_seconds(static_cast<std::int32_t>(time->count()));
  }
  return ask_once<Reservation>(*connection_, call, &Shop::Reserve, request);
}

Reservation Client::confirm(const std::string& key, const Call& call) const {
  return ask_once<Reservation>(*connection_, call, &Shop::Confirm, reservation(key));
}

Reservation Client::release(const std::string& key, const Call& call) const {
  return ask_once<Reservation>(*connection_, call, &Shop::Release, reservation(key));
}

std::variant<Written, Exists> Client::create(std::string key, std::string value, milliseconds ttl,
                                             const Call& call) const {
  io::grpc::CreateRequest request;
  request.set_key(std::move(key));
  request.set_value(std::move(value));
  request.set_time_to_live_ms(checked_ttl(ttl));
  request.set_want_details(true);
  const auto answer = connection_->try_ask(Kind::kWrite, kWrite, call, &KeyValueService::Stub::Create, request);
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    if (is_outcome(*failure, Code::ALREADY_EXISTS)) {
      return Exists{};
    }
    failure->raise();
  }
  return Written{std::get<io::grpc::CreateResponse>(answer).version()};
}

Written Client::put(std::string key, std::string value, milliseconds ttl, const Call& call) const {
  io::grpc::PutRequest request;
  request.set_key(std::move(key));
  request.set_value(std::move(value));
  request.set_time_to_live_ms(checked_ttl(ttl));
  return {connection_->ask(Kind::kWrite, kWrite, call, &KeyRangeService::Stub::Put, request).version()};
}

std::optional<Entry> Client::get(std::string key, const Call& call) const {
  io::grpc::RetrieveRequest request;
  request.set_key(std::move(key));
  request.set_want_details(true);
  auto answer = connection_->try_ask(Kind::kRead, kRead, call, &KeyValueService::Stub::Retrieve, request);
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    if (is_outcome(*failure, Code::NOT_FOUND)) {
      return std::nullopt;
    }
    failure->raise();
  }
  auto& reply = std::get<io::grpc::RetrieveResponse>(answer);
  return Entry{.key = std::move(*request.mutable_key()),
               .value = std::move(*reply.mutable_value()),
               .version = reply.version(),
               .time_left = time_left(reply)};
}

std::variant<Written, NoSuchKey, AnotherVersion> Client::update(std::string key, std::string value,
                                                                std::optional<std::uint64_t> expected, milliseconds ttl,
                                                                const Call& call) const {
  io::grpc::UpdateRequest request;
  request.set_key(std::move(key));
  request.set_value(std::move(value));
  request.set_time_to_live_ms(checked_ttl(ttl));
  request.set_want_details(true);
  if (expected) {
    request.set_expected_version(*expected);
  }
  const auto answer = connection_->try_ask(Kind::kWrite, kWrite, call, &KeyValueService::Stub::Update, request);
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    if (is_outcome(*failure, Code::NOT_FOUND)) {
      return NoSuchKey{};
    }
    if (is_outcome(*failure, Code::ABORTED)) {
      return AnotherVersion{};
    }
    failure->raise();
  }
  return Written{std::get<io::grpc::UpdateResponse>(answer).version()};
}

std::variant<Deleted, AnotherVersion> Client::remove(std::string key, std::optional<std::uint64_t> expected,
                                                     const Call& call) const {
  io::grpc::DeleteRequest request;
  request.set_key(std::move(key));
  request.set_want_details(true);
  if (expected) {
    request.set_expected_version(*expected);
  }
  const auto answer = connection_->try_ask(Kind::kWrite, kWrite, call, &KeyValueService::Stub::Delete, request);
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    if (is_outcome(*failure, Code::ABORTED)) {
      return AnotherVersion{};
    }
    failure->raise();
  }
  return Deleted{std::get<io::grpc::DeleteResponse>(answer).deleted()};
}

Listing<Entry> Client::scan(std::string prefix, bool keys_only, Call call) const {
  io::grpc::ScanRequest first;
  first.set_prefix(std::move(prefix));
  first.set_keys_only(keys_only);
  return Listing<Entry>([connection = connection_, request = std::move(first), call = std::move(call),
                         is_over = false](std::string& /*message*/) mutable -> std::optional<std::vector<Entry>> {
    if (is_over) {
      return std::nullopt;
    }
    auto reply = connection->ask(Kind::kRead, kRead, call, &KeyRangeService::Stub::Scan, request);
    is_over = !reply.has_next_start_after();
    request.set_start_after(std::move(*reply.mutable_next_start_after()));
    std::vector<Entry> entries;
    entries.reserve(static_cast<std::size_t>(reply.entries_size()));
    for (auto& entry : *reply.mutable_entries()) {
      entries.push_back({.key = std::move(*entry.mutable_key()),
                         .value = value_of(*entry.mutable_value(), request.keys_only() || entry.value_left_out()),
                         .version = entry.version(),
                         .time_left = time_left(entry)});
    }
    return entries;
  });
}

Listing<Event> Client::watch(std::string prefix, Call call) const {
  io::grpc::WatchRequest request;
  request.set_prefix(std::move(prefix));
  return stream<Event>(connection_, &KeyRangeService::Stub::Watch, std::move(request), std::move(call));
}

Operator::Operator(std::string token, Options options) {
  if (token.empty()) {
    throw std::invalid_argument("the token is empty; an operator's calls need the server's token");
  }
  options.token = std::move(token);
  connection_ = std::make_shared<Connection>(std::move(options));
}

Listing<Book> Operator::list(Call call) const {
  return pages<Book>(connection_, &Admin::List, bookstore::ListRequest(), std::move(call),
                     &bookstore::ListReply::mutable_books);
}

std::int64_t Operator::restock(std::optional<std::int32_t> amount, const Call& call) const {
  bookstore::RestockRequest request;
  if (amount) {
    request.set_amount(*amount);
  }
  return connection_->ask(Kind::kWrite, kWrite, call, &Admin::Restock, request).books_raised();
}

std::optional<PriceChange> Operator::update_price(std::int32_t id, std::int64_t cents, const Call& call) const {
  check_positive("id", id);
  bookstore::UpdatePriceRequest request;
  request.set_id(id);
  request.set_price_cents(cents);
  const auto reply = connection_->ask(Kind::kWrite, kWrite, call, &Admin::UpdatePrice, request);
  if (!reply.success()) {
    return std::nullopt;
  }
  return PriceChange{.cents_before = reply.price_cents_before(), .cents_after = reply.price_cents_after()};
}

Listing<LogEntry> Operator::log(Call call) const {
  return pages<LogEntry>(connection_, &Admin::Log, bookstore::LogRequest(), std::move(call),
                         &bookstore::LogReply::mutable_entries);
}

Listing<LogEntry> Operator::tail_log(std::optional<std::int64_t> after, Call call) const {
  bookstore::TailLogRequest request;
  if (after) {
    request.set_after_number(*after);
  }
  return stream<LogEntry>(connection_, &Admin::TailLog, std::move(request), std::move(call));
}

}  // namespace quire
