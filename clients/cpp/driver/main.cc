/// Calls the library for the suite: a request of one line of JSON at a time, up to 64 at once.

#include <absl/strings/escaping.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "bench.h"
#include "connect.h"
#include "quire/client.h"

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::ptrdiff_t kAtOnce = 64;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;

std::string base64(const std::string& bytes) { return absl::Base64Escape(bytes); }

std::string bytes(const json& request, const char* name) {
  std::string out;
  if (request.contains(name) && !absl::Base64Unescape(request[name].get<std::string>(), &out)) {
    throw std::invalid_argument(std::string(name) + " is not base64");
  }
  return out;
}

template <class T>
std::optional<T> optional(const json& request, const char* name) {
  return request.contains(name) ? std::optional(request[name].get<T>()) : std::nullopt;
}

void say(const json& answer) {
  static std::mutex mutex;
  const auto line = answer.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::scoped_lock lock(mutex);
  std::cout << line << std::endl;  // NOLINT(performance-avoid-endl): each answer is due at once
}

/// What a function gives of each item, of the first `most` ones.
template <class T, class Each>
json each_of(quire::Listing<T> listing, Each each, std::size_t most = SIZE_MAX) {
  auto found = json::array();
  while (found.size() < most) {
    auto item = listing.next();
    if (!item) {
      break;
    }
    found.push_back(each(*item));
  }
  return found;
}

/// One request and what it is asked with.
struct Asked {
  const quire::Client& client;
  const std::optional<quire::Operator>& operator_or_none;
  const json& request;
  quire::Call call;

  [[nodiscard]] const quire::Operator& admin() const {
    if (!operator_or_none) {
      throw std::invalid_argument("an operator's calls need --token");
    }
    return *operator_or_none;
  }
  [[nodiscard]] std::string key() const { return bytes(request, "key"); }
  [[nodiscard]] std::string value() const { return bytes(request, "value"); }
  [[nodiscard]] std::string prefix() const { return bytes(request, "prefix"); }
  [[nodiscard]] milliseconds ttl() const { return milliseconds(request.value("ttl_ms", std::int64_t{0})); }
  [[nodiscard]] std::optional<std::uint64_t> version() const {
    return optional<std::uint64_t>(request, "expected_version");
  }
};

json outcome(const char* name) { return {{"outcome", name}}; }
json number(const quire::LogEntry& entry) { return entry.number; }
json id(const quire::Book& book) { return book.id; }
json name(const quire::Topic& topic) { return topic.name; }

const auto kOutcomes = Match{
    [](quire::Written done) -> json {
      return {{"version", done.version}};
    },
    [](quire::Deleted done) -> json {
      return {{"deleted", done.existed}};
    },
    [](quire::Exists) { return outcome("exists"); },
    [](quire::NoSuchKey) { return outcome("no_such_key"); },
    [](quire::AnotherVersion) { return outcome("another_version"); },
    [](quire::Bought) { return outcome("bought"); },
    [](quire::SoldOut) { return outcome("sold_out"); },
    [](quire::TooFew) { return outcome("too_few"); },
    [](quire::NoSuchBook) { return outcome("no_such_book"); },
    [](quire::NotBought) { return outcome("not_bought"); },
    [](const quire::Unknown&) { return outcome("unknown"); },
    [](quire::Unspecified) { return outcome("unspecified"); },
    [](quire::Held) { return outcome("held"); },
    [](quire::Released) { return outcome("released"); },
    [](quire::Expired) { return outcome("expired"); },
    [](quire::NoSuchReservation) { return outcome("no_such_reservation"); },
};

json lookup(const Asked& asked) {
  const auto book = asked.client.lookup(asked.request.at("id"), asked.call).book;
  return {{"book", !book ? json()
                         : json{{"held", book->held},
                                {"id", book->id},
                                {"price_cents", book->price_cents},
                                {"stock", book->stock},
                                {"title", book->title},
                                {"topic", book->topic}}}};
}

quire::Order order(const Asked& asked) {
  return {.quantity = asked.request.value("quantity", 1), .key = optional<std::string>(asked.request, "key")};
}

json buy(const Asked& asked) {
  const auto purchase = asked.client.buy(asked.request.at("id"), order(asked), asked.call);
  auto answer = std::visit(kOutcomes, purchase.outcome);
  answer.update({{"key", purchase.key}, {"replayed", purchase.replayed}});
  if (std::holds_alternative<quire::Bought>(purchase.outcome)) {
    answer["number"] = purchase.number;
  }
  if (purchase.stock_left) {
    answer["stock_left"] = *purchase.stock_left;
  }
  return answer;
}

json receipt(const Asked& asked) {
  const auto found = asked.client.receipt(asked.request.at("number"), asked.request.at("key"), asked.call).receipt;
  return {{"receipt", found ? json(found->text) : json()}, {"log_key", found ? json(found->log_key) : json()}};
}

json reservation(const quire::Reservation& made) {
  auto answer = std::visit(kOutcomes, made.outcome);
  answer.update({{"key", made.key}, {"replayed", made.replayed}});
  for (const auto& [name, number] : {std::pair<const char*, std::int64_t>("id", made.id),
                                     {"quantity", made.quantity},
                                     {"number", made.number},
                                     {"until_ms", made.until_ms}}) {
    if (number != 0) {
      answer[name] = number;
    }
  }
  if (made.stock_left) {
    answer["stock_left"] = *made.stock_left;
  }
  return answer;
}

json reserve(const Asked& asked) {
  const auto seconds = optional<std::int64_t>(asked.request, "seconds");
  const auto time = seconds ? std::optional(std::chrono::seconds(*seconds)) : std::nullopt;
  return reservation(asked.client.reserve(asked.request.at("id"), order(asked), time, asked.call));
}

json get(const Asked& asked) {
  const auto entry = asked.client.get(asked.key(), asked.call);
  if (!entry) {
    return outcome("no_such_key");
  }
  json answer = {{"value", base64(entry->value.value())}, {"version", entry->version}};
  if (entry->time_left) {
    answer["ttl_ms"] = entry->time_left->count();
  }
  return answer;
}

json scan(const Asked& asked) {
  const bool keys_only = asked.request.value("keys_only", false);
  json answer = {{"keys", json::array()}};
  if (!keys_only) {
    answer["values"] = json::array();
  }
  for (const auto& entry : asked.client.scan(asked.prefix(), keys_only, asked.call)) {
    answer["keys"].push_back(base64(entry.key));
    if (!keys_only) {
      answer["values"].push_back(entry.value ? json(base64(*entry.value)) : json());
    }
  }
  return answer;
}

json watch(const Asked& asked) {
  static constexpr std::array kKinds = {"started", "put", "deleted", "expired"};
  auto events = asked.client.watch(asked.prefix(), asked.call);
  events.next();
  say({{"n", asked.request.at("n")}, {"started", true}});
  json answer = {{"keys", json::array()}, {"kinds", json::array()}};
  const auto count = asked.request.value("events", std::size_t{0});
  for (std::optional<quire::Event> event; answer["keys"].size() < count && (event = events.next());) {
    answer["keys"].push_back(base64(event->key));
    answer["kinds"].push_back(kKinds.at(static_cast<std::size_t>(event->kind)));
  }
  return answer;
}

json update_price(const Asked& asked) {
  const auto change = asked.admin().update_price(asked.request.at("id"), asked.request.at("cents"), asked.call);
  return {{"before", change ? json(change->cents_before) : json()},
          {"after", change ? json(change->cents_after) : json()}};
}

const std::map<std::string_view, json (*)(const Asked&)> kCalls = {
    {"ping",
     [](const Asked& asked) -> json {
       return {{"message", asked.client.ping(asked.call)}};
     }},
    {"search",
     [](const Asked& asked) -> json {
       const auto& request = asked.request;
       return {
           {"ids", each_of(asked.client.search(request.at("topic"), request.value("page_size", 0), asked.call), id)}};
     }},
    {"topics",
     [](const Asked& asked) -> json {
       return {{"names", each_of(asked.client.topics(asked.request.value("near", ""), asked.call), name)}};
     }},
    {"lookup", lookup},
    {"buy", buy},
    {"receipt", receipt},
    {"reserve", reserve},
    {"confirm",
     [](const Asked& asked) { return reservation(asked.client.confirm(asked.request.at("key"), asked.call)); }},
    {"release",
     [](const Asked& asked) { return reservation(asked.client.release(asked.request.at("key"), asked.call)); }},
    {"create",
     [](const Asked& asked) {
       return std::visit(kOutcomes, asked.client.create(asked.key(), asked.value(), asked.ttl(), asked.call));
     }},
    {"put",
     [](const Asked& asked) {
       return kOutcomes(asked.client.put(asked.key(), asked.value(), asked.ttl(), asked.call));
     }},
    {"update",
     [](const Asked& asked) {
       return std::visit(kOutcomes,
                         asked.client.update(asked.key(), asked.value(), asked.version(), asked.ttl(), asked.call));
     }},
    {"delete",
     [](const Asked& asked) {
       return std::visit(kOutcomes, asked.client.remove(asked.key(), asked.version(), asked.call));
     }},
    {"get", get},
    {"scan", scan},
    {"watch", watch},
    {"list",
     [](const Asked& asked) -> json {
       return {{"ids", each_of(asked.admin().list(asked.call), id)}};
     }},
    {"restock",
     [](const Asked& asked) -> json {
       return {{"raised", asked.admin().restock(optional<std::int32_t>(asked.request, "amount"), asked.call)}};
     }},
    {"update_price", update_price},
    {"log",
     [](const Asked& asked) -> json {
       return {{"numbers", each_of(asked.admin().log(asked.call), number, asked.request.value("limit", SIZE_MAX))}};
     }},
    {"tail_log",
     [](const Asked& asked) -> json {
       return {{"numbers", each_of(asked.admin().tail_log(optional<std::int64_t>(asked.request, "after"), asked.call),
                                   number, asked.request.value("entries", SIZE_MAX))}};
     }},
};

json fault(const char* error, const quire::Fault& fault, const json& request) {
  json answer{{"error", error}, {"code", quire::code_name(fault.code())}, {"message", fault.what()}};
  if (request.contains("cause")) {
    answer["cause"] = fault.cause();
  }
  return answer;
}

json answer(const quire::Client& client, const std::optional<quire::Operator>& admin, const json& request) {
  try {
    Asked asked{.client = client, .operator_or_none = admin, .request = request, .call = {}};
    if (const auto timeout_ms = optional<std::int64_t>(request, "timeout_ms")) {
      asked.call.timeout = milliseconds(*timeout_ms);
    }
    asked.call.traceparent = request.value("traceparent", std::string());
    asked.call.tracestate = request.value("tracestate", std::string());
    const auto call = kCalls.find(request.at("call").get<std::string>());
    if (call == kCalls.end()) {
      throw std::invalid_argument("there is no call " + request.at("call").dump());
    }
    return call->second(asked);
  } catch (const quire::Refused& refused) {
    return fault("refused", refused, request);
  } catch (const quire::Unreachable& unreachable) {
    return fault("unreachable", unreachable, request);
  } catch (const quire::OutcomeUnknown& unknown) {
    return fault("outcome_unknown", unknown, request);
  } catch (const std::exception& error) {
    return {{"error", "argument"}, {"message", error.what()}};
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::ios::sync_with_stdio(false);
  // Otherwise reading flushes the output, beside the threads that write it.
  std::cin.tie(nullptr);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.at(0) == "bench") {
      say(bench({words.begin() + 1, words.end()}));
      return 0;
    }
    CLI::App app;
    quire::Connect connect;
    std::string addresses;
    app.add_option("ADDRESS", addresses)->required();
    connect.add_to(app);
    app.parse(count, arguments);
    const auto how = connect.options(addresses);
    const quire::Client client(how);
    std::optional<quire::Operator> admin;
    if (!how.token.empty()) {
      admin.emplace(how.token, how);
    }
    std::counting_semaphore<kAtOnce> places(kAtOnce);
    for (std::string line; std::getline(std::cin, line);) {
      places.acquire();
      std::thread([&, line] {
        const auto request = json::parse(line);
        auto reply = answer(client, admin, request);
        reply["n"] = request.at("n");
        say(reply);
        places.release();
      }).detach();
    }
    for (std::ptrdiff_t i = 0; i < kAtOnce; ++i) {
      places.acquire();
    }
  } catch (const std::exception& error) {
    std::cerr << "driver: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
