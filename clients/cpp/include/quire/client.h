/// The client of a Quire server: its bookstore, its key-value store and, for operators, its administration.
///
/// A Client and an Operator are handles of connections. They are cheap to copy, copies share the connections, and every
/// call may be made from any thread; it blocks until it has an answer or the time is over.
///
/// What the store decides is a value that is returned. Faults are exceptions: Refused, Unreachable and OutcomeUnknown,
/// all of them a Fault; a wrong argument is std::invalid_argument, thrown before anything is sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/fault.h"
#include "quire/listing.h"

namespace quire {

/// Where a server listens.
struct Address {
  /// A name or an IP address; one of IPv6 is in brackets.
  std::string host = "127.0.0.1";
  std::uint16_t port = 10086;
  bool tls = false;

  /// Reads `HOST:PORT`, a host, or `:PORT` for this machine, with `http://` or `https://` before it if need be.
  static Address parse(std::string_view text);
  /// Reads several with commas between.
  static std::vector<Address> parse_list(std::string_view text);
};

/// Certificates and keys in PEM, for the addresses that speak TLS.
struct Tls {
  /// Certificates to trust; the system's if empty.
  std::string roots = {};
  /// The client's own certificate and its private key: both or neither.
  std::string certificate = {};
  std::string key = {};
};

/// How to reach the servers.
struct Options {
  /// Calls go round between those that answer.
  std::vector<Address> addresses = {Address{}};
  Tls tls = {};
  /// Sent as `authorization: Bearer TOKEN` unless empty.
  std::string token = {};
  /// How often a call is sent again. A purchase in doubt is sent until its deadline, unless this is 0.
  std::uint32_t retries = 3;
};

/// What one call may take.
struct Call {
  /// The deadline of the whole call, retries and pauses included. By default 5 s for a read, 30 s for what has a key, 5
  /// s for another write, and none for a watch or a tail. Each page of a listing is a call.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Ends the call; a purchase or a write that was sent is in doubt then.
  std::stop_token stop = {};
  /// The caller's trace, as W3C's Trace Context has it. Left out unless it is 1 to 512 bytes of printable ASCII without
  /// blanks around it.
  std::string traceparent = {};
  /// Goes with a `traceparent` only, and is left out for the same reasons.
  std::string tracestate = {};
};

struct Book {
  std::int32_t id = 0;
  std::string title = {};
  std::string topic = {};
  /// Copies that can be bought.
  std::int32_t stock = 0;
  /// Copies that reservations hold; they are not in `stock`.
  std::int32_t held = 0;
  std::int64_t price_cents = 0;
};

struct Topic {
  std::string name = {};
  std::int64_t books = 0;
};

struct Lookup {
  std::optional<Book> book = {};
  /// In the server's words.
  std::string message = {};
};

/// What to buy or to reserve of a book.
struct Order {
  std::int32_t quantity = 1;
  /// 1 to 64 bytes that name the purchase or the reservation; random if absent. The same key buys nothing twice.
  std::optional<std::string> key = {};
};

struct Bought {};
struct SoldOut {};
struct TooFew {};
struct NoSuchBook {};
/// Not bought, for no known reason; the message may have one.
struct NotBought {};
/// The purchase may have been made or not, or the call done. The same call with the key settles it.
struct Unknown {
  /// Why there is no answer: of the last attempt in doubt.
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string message = {};
};

/// What became of a purchase.
struct Purchase {
  std::variant<NotBought, Bought, SoldOut, TooFew, NoSuchBook, Unknown> outcome = {};
  std::string key = {};
  /// In the transaction log; 0 if nothing was bought, or the server does not send it.
  std::int64_t number = 0;
  /// This is the stored answer to an earlier request with the key; nothing was bought again.
  bool replayed = false;
  /// Copies left; absent if the server does not send them.
  std::optional<std::int32_t> stock_left = {};
  /// In the server's words.
  std::string message = {};
};

/// A proof that the log has a purchase, which anyone can check without the server.
struct Receipt {
  /// In the form of c2sp.org/tlog-proof.
  std::string text = {};
  /// The log's public key now, in the form of c2sp.org/signed-note. It proves something only if the reader has it from
  /// elsewhere as well.
  std::string log_key = {};
};

struct ReceiptLookup {
  std::optional<Receipt> receipt = {};
  /// In the server's words.
  std::string message = {};
};

struct Held {};
struct Released {};
/// Its time is over, and the copies were given back.
struct Expired {};
struct NoSuchReservation {};
/// An outcome that this library does not know.
struct Unspecified {};

/// A reservation after a call.
struct Reservation {
  /// After SoldOut and TooFew nothing is held, and the same key may try again.
  std::variant<Unspecified, Held, Bought, Released, Expired, SoldOut, TooFew, NoSuchBook, NoSuchReservation, Unknown>
      outcome = {};
  /// The call did what it is for, now or when it was sent first.
  bool success = false;
  std::string key = {};
  /// The book and the copies; 0 if there is no reservation.
  std::int32_t id = 0;
  std::int32_t quantity = 0;
  /// Of the entry in the transaction log that led to this state, the purchase's number once the copies are bought; 0 if
  /// nothing was written there.
  std::int64_t number = 0;
  /// An earlier call with the key led to this state, or the end of the time.
  bool replayed = false;
  /// Copies that can be bought or reserved; absent if the server does not send them.
  std::optional<std::int32_t> stock_left = {};
  /// When the copies are or were given back by themselves, in milliseconds since 1970-01-01T00:00:00Z by the server's
  /// clock; 0 if there is no reservation.
  std::int64_t until_ms = 0;
  /// In the server's words.
  std::string message = {};
};

/// 32 random hexadecimal digits, to name a purchase or a reservation with.
std::string random_key();

/// A write that was done.
struct Written {
  /// No other write of the store has it; later ones have greater ones.
  std::uint64_t version = 0;
};
struct Deleted {
  /// True if there was an entry.
  bool existed = false;
};
struct Exists {};
struct NoSuchKey {};
struct AnotherVersion {};

struct Entry {
  std::string key = {};
  /// Absent if only keys were asked for, or if it is too large for a page; then get() has it.
  std::optional<std::string> value = {};
  std::uint64_t version = 0;
  /// Absent if the entry does not expire.
  std::optional<std::chrono::milliseconds> time_left = {};
};

enum class EventKind { kStarted, kPut, kDeleted, kExpired };

struct Event {
  EventKind kind = EventKind::kStarted;
  std::string key = {};
  /// The new value of a put; absent if it is too large for an event: then get() has it.
  std::optional<std::string> value = {};
  std::uint64_t version = 0;
};

class Connection;

/// The calls of a shopper and of the key-value store.
class Client {
 public:
  explicit Client(Options options = {});

  /// The server's greeting.
  std::string ping(const Call& call = {}) const;
  /// The books of a topic, in the order of their ids; `page_size` 0 leaves the size of a page to this library.
  Listing<Book> search(std::string topic, std::int32_t page_size = 0, Call call = {}) const;
  /// The topics, or those near a text, best first.
  Listing<Topic> topics(std::string near = {}, Call call = {}) const;
  Lookup lookup(std::int32_t id, const Call& call = {}) const;
  /// Buys exactly once: sends again what has no answer, with the same key.
  [[nodiscard]] Purchase buy(std::int32_t id, const Order& order = {}, const Call& call = {}) const;
  /// The receipt of the purchase with a number that was made with a key, if there is one.
  ReceiptLookup receipt(std::int64_t number, const std::string& key, const Call& call = {}) const;
  /// Holds copies for a time, the server's default if absent. This and the next two are sent as buy() is, and each does
  /// its part once.
  [[nodiscard]] Reservation reserve(std::int32_t id, const Order& order = {},
                                    std::optional<std::chrono::seconds> time = {}, const Call& call = {}) const;
  /// Buys what a reservation holds, at the price of now.
  [[nodiscard]] Reservation confirm(const std::string& key, const Call& call = {}) const;
  /// Gives back what a reservation holds.
  [[nodiscard]] Reservation release(const std::string& key, const Call& call = {}) const;

  /// An entry with a time to live expires after it; zero: never.
  [[nodiscard]] std::variant<Written, Exists> create(std::string key, std::string value,
                                                     std::chrono::milliseconds ttl = {}, const Call& call = {}) const;
  Written put(std::string key, std::string value, std::chrono::milliseconds ttl = {}, const Call& call = {}) const;
  std::optional<Entry> get(std::string key, const Call& call = {}) const;
  /// Another name of get().
  std::optional<Entry> retrieve(std::string key, const Call& call = {}) const { return get(std::move(key), call); }
  /// Replaces a value; with `expected`, only that of this version.
  [[nodiscard]] std::variant<Written, NoSuchKey, AnotherVersion> update(std::string key, std::string value,
                                                                        std::optional<std::uint64_t> expected = {},
                                                                        std::chrono::milliseconds ttl = {},
                                                                        const Call& call = {}) const;
  [[nodiscard]] std::variant<Deleted, AnotherVersion> remove(std::string key,
                                                             std::optional<std::uint64_t> expected = {},
                                                             const Call& call = {}) const;
  /// Entries in the order of their keys; each is as it was when its page was read.
  Listing<Entry> scan(std::string prefix = {}, bool keys_only = false, Call call = {}) const;
  /// Every change from the first event on, which marks the beginning of the watch. Ends with a fault, or with the
  /// call's stop token or the listing's end of life.
  Listing<Event> watch(std::string prefix = {}, Call call = {}) const;

 private:
  std::shared_ptr<Connection> connection_;
};

struct PriceChange {
  std::int64_t cents_before = 0;
  std::int64_t cents_after = 0;
};

enum class LogKind {
  kOther,
  kAdded,
  kPurchase,
  kRefused,
  kRestock,
  kPrice,
  kAdjusted,
  kRemoved,
  kEdited,
  kDelisted,
  kListed,
  kReserved,
  kReleased
};

/// An entry of the transaction log.
struct LogEntry {
  std::int64_t number = 0;
  std::chrono::system_clock::time_point time = {};
  LogKind kind = LogKind::kOther;
  std::int32_t book_id = 0;
  /// Copies that a purchase or a reservation asked for.
  std::optional<std::int32_t> quantity = {};
  /// Copies, or cents for a price; absent if there was no such book.
  std::optional<std::int64_t> before = {};
  std::optional<std::int64_t> after = {};
  std::string key = {};
};

/// The operator's calls. A server that others can reach requires its token.
class Operator {
 public:
  /// The token takes the place of `options.token`; an empty one is std::invalid_argument.
  explicit Operator(std::string token, Options options = {});

  /// Every book, in the order of ids.
  Listing<Book> list(Call call = {}) const;
  /// Raises every book with fewer copies to `amount`, the server's default if absent; gives how many were raised.
  std::int64_t restock(std::optional<std::int32_t> amount = {}, const Call& call = {}) const;
  /// None if there is no such book.
  std::optional<PriceChange> update_price(std::int32_t id, std::int64_t cents, const Call& call = {}) const;
  /// The transaction log, newest first.
  Listing<LogEntry> log(Call call = {}) const;
  /// Entries after a number, as they come, oldest first; without one, those from now on.
  Listing<LogEntry> tail_log(std::optional<std::int64_t> after = {}, Call call = {}) const;

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace quire
