#include "wire.h"

#include <array>
#include <chrono>
#include <cmath>
#include <utility>

namespace quire {
namespace {

/// From a server that knows no cents, the fraction.
std::int64_t cents(const bookstore::Book& book) {
  constexpr double kPriceMax = 1e15;
  if (book.price_cents() != 0 || !(std::abs(book.price()) < kPriceMax)) {
    return book.price_cents();
  }
  return std::llround(book.price() * 100);
}

EventKind from_wire(io::grpc::WatchEventKind kind) {
  switch (kind) {
    case io::grpc::WATCH_EVENT_KIND_PUT:
      return EventKind::kPut;
    case io::grpc::WATCH_EVENT_KIND_DELETED:
      return EventKind::kDeleted;
    case io::grpc::WATCH_EVENT_KIND_EXPIRED:
      return EventKind::kExpired;
    default:
      return EventKind::kStarted;
  }
}

LogKind from_wire(bookstore::LogEntryKind kind) {
  return bookstore::LogEntryKind_IsValid(kind) ? static_cast<LogKind>(kind) : LogKind::kOther;
}

}  // namespace

std::optional<std::string> value_of(std::string& value, bool is_absent) {
  return is_absent ? std::nullopt : std::optional(std::move(value));
}

Book from_wire(bookstore::Book& book) {
  return {.id = book.id(),
          .title = std::move(*book.mutable_title()),
          .topic = std::move(*book.mutable_topic()),
          .stock = book.stock(),
          .held = book.held(),
          .price_cents = cents(book)};
}

Topic from_wire(bookstore::Topic& topic) { return {.name = std::move(*topic.mutable_name()), .books = topic.books()}; }

Event from_wire(io::grpc::WatchEvent& event) {
  return {.kind = from_wire(event.kind()),
          .key = std::move(*event.mutable_key()),
          .value = value_of(*event.mutable_value(),
                            event.kind() != io::grpc::WATCH_EVENT_KIND_PUT || event.value_left_out()),
          .version = event.version()};
}

LogEntry from_wire(bookstore::LogEntry& entry) {
  return {.number = entry.number(),
          .time = std::chrono::system_clock::time_point(std::chrono::milliseconds(entry.time_ms())),
          .kind = from_wire(entry.kind()),
          .book_id = entry.book_id(),
          .quantity = entry.has_quantity() ? std::optional(entry.quantity()) : std::nullopt,
          .before = entry.has_before() ? std::optional(entry.before()) : std::nullopt,
          .after = entry.has_after() ? std::optional(entry.after()) : std::nullopt,
          .key = std::move(*entry.mutable_idempotency_key())};
}

Purchase from_wire(bookstore::BuyBookReply& reply, std::string key) {
  Purchase purchase;
  purchase.key = std::move(key);
  purchase.replayed = reply.replayed();
  purchase.message = std::move(*reply.mutable_message());
  if (reply.has_stock_left()) {
    purchase.stock_left = reply.stock_left();
  }
  // Every server reports if it was bought; later ones also why not.
  if (reply.success()) {
    purchase.outcome = Bought{};
    purchase.number = reply.purchase_number();
  } else if (reply.outcome() == bookstore::BUY_OUTCOME_SOLD_OUT) {
    purchase.outcome = SoldOut{};
  } else if (reply.outcome() == bookstore::BUY_OUTCOME_TOO_FEW) {
    purchase.outcome = TooFew{};
  } else if (reply.outcome() == bookstore::BUY_OUTCOME_NO_SUCH_BOOK) {
    purchase.outcome = NoSuchBook{};
  }
  return purchase;
}

Reservation from_wire(bookstore::ReservationReply& reply, std::string key) {
  // In the order of the wire.
  static const std::array<decltype(Reservation::outcome), 9> kOutcomes = {
      Unspecified{}, Held{}, Bought{}, Released{}, Expired{}, SoldOut{}, TooFew{}, NoSuchBook{}, NoSuchReservation{}};
  Reservation reservation;
  if (bookstore::ReservationOutcome_IsValid(reply.outcome())) {
    reservation.outcome = kOutcomes.at(static_cast<std::size_t>(reply.outcome()));
  }
  reservation.success = reply.success();
  reservation.key = std::move(key);
  reservation.id = reply.id();
  reservation.quantity = reply.quantity();
  reservation.number = reply.number();
  reservation.replayed = reply.replayed();
  if (reply.has_stock_left()) {
    reservation.stock_left = reply.stock_left();
  }
  reservation.until_ms = reply.until_ms();
  reservation.message = std::move(*reply.mutable_message());
  return reservation;
}

}  // namespace quire
