/// What the server's messages are to callers. Must not know how messages travel.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "quire/client.h"
#include "quire/wire/bookstore.pb.h"
#include "quire/wire/kv.pb.h"

namespace quire {

Book from_wire(bookstore::Book& book);
Topic from_wire(bookstore::Topic& topic);
Event from_wire(io::grpc::WatchEvent& event);
LogEntry from_wire(bookstore::LogEntry& entry);
Purchase from_wire(bookstore::BuyBookReply& reply, std::string key);
Reservation from_wire(bookstore::ReservationReply& reply, std::string key);
std::optional<std::string> value_of(std::string& value, bool is_absent);

template <class T, class Wire>
std::vector<T> from_wire(google::protobuf::RepeatedPtrField<Wire>& wires) {
  std::vector<T> items;
  items.reserve(static_cast<std::size_t>(wires.size()));
  for (auto& wire : wires) {
    items.push_back(from_wire(wire));
  }
  return items;
}

}  // namespace quire
