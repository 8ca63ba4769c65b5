/// Calls the library for the suite: a request of one line of JSON at a time, up to 64 at once.

#include <absl/strings/escaping.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "bench.h"
#include "quire/client.h"

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::ptrdiff_t kAtOnce = 64;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

std::string read_file(const std::string& name) {
  std::ifstream input(name, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(input), {});
  if (!input) {
    throw std::invalid_argument("cannot read " + name);
  }
  return text;
}

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

milliseconds ttl(const json& request) { return milliseconds(request.value("ttl_ms", std::int64_t{0})); }

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

json written(const quire::Written& done) { return {{"version", done.version}}; }
json outcome(const char* name) { return {{"outcome", name}}; }

json number(const quire::LogEntry& entry) { return entry.number; }
json id(const quire::Book& book) { return book.id; }

const auto kWrites = Match{
    [](const quire::Written& done) { return written(done); },
    [](const quire::Deleted& done) -> json {
      return {{"deleted", done.existed}};
    },
    [](quire::Exists) { return outcome("exists"); },
    [](quire::NoSuchKey) { return outcome("no_such_key"); },
    [](quire::AnotherVersion) { return outcome("another_version"); },
};

class Driver {
 public:
  Driver(const quire::Options& options) : client_(options) {
    if (!options.token.empty()) {
      operator_.emplace(options.token, options);
    }
  }

  json answer(const json& request) const {
    quire::Call call;
    if (const auto timeout_ms = optional<std::int64_t>(request, "timeout_ms")) {
      call.timeout = milliseconds(*timeout_ms);
    }
    static const std::map<std::string, json (Driver::*)(const json&, const quire::Call&) const> kCalls = {
        {"ping", &Driver::ping},     {"search", &Driver::search},    {"topics", &Driver::topics},
        {"lookup", &Driver::lookup}, {"buy", &Driver::buy},          {"create", &Driver::create},
        {"put", &Driver::put},       {"update", &Driver::update},    {"retrieve", &Driver::retrieve},
        {"delete", &Driver::remove}, {"scan", &Driver::scan},        {"watch", &Driver::watch},
        {"list", &Driver::list},     {"restock", &Driver::restock},  {"update_price", &Driver::update_price},
        {"log", &Driver::log},       {"tail_log", &Driver::tail_log}};
    const auto method = kCalls.find(request.at("call").get<std::string>());
    if (method == kCalls.end()) {
      throw std::invalid_argument("there is no call " + request.at("call").dump());
    }
    return (this->*method->second)(request, call);
  }

 private:
  [[nodiscard]] const quire::Operator& admin() const {
    if (!operator_) {
      throw std::invalid_argument("an operator's calls need --token");
    }
    return *operator_;
  }

  json ping(const json& /*request*/, const quire::Call& call) const { return {{"message", client_.ping(call)}}; }

  json search(const json& request, const quire::Call& call) const {
    return {{"ids", each_of(client_.search(request.at("topic"), request.value("page_size", 0), call), id)}};
  }

  json topics(const json& request, const quire::Call& call) const {
    const auto name = [](const quire::Topic& topic) -> json { return topic.name; };
    return {{"names", each_of(client_.topics(request.value("near", ""), call), name)}};
  }

  json lookup(const json& request, const quire::Call& call) const {
    const auto found = client_.lookup(request.at("id"), call).book;
    if (!found) {
      return {{"book", nullptr}};
    }
    return {{"book",
             {{"id", found->id},
              {"price_cents", found->price_cents},
              {"stock", found->stock},
              {"title", found->title},
              {"topic", found->topic}}}};
  }

  json buy(const json& request, const quire::Call& call) const {
    const auto purchase =
        client_.buy(request.at("id"),
                    {.quantity = request.value("quantity", 1), .key = optional<std::string>(request, "key")}, call);
    auto answer = std::visit(Match{
                                 [&](quire::Bought) -> json {
                                   return {{"outcome", "bought"}, {"number", purchase.number}};
                                 },
                                 [](quire::SoldOut) { return outcome("sold_out"); },
                                 [](quire::TooFew) { return outcome("too_few"); },
                                 [](quire::NoSuchBook) { return outcome("no_such_book"); },
                                 [](const quire::Unknown&) { return outcome("unknown"); },
                             },
                             purchase.outcome);
    answer.update({{"key", purchase.key}, {"replayed", purchase.replayed}});
    if (purchase.stock_left) {
      answer["stock_left"] = *purchase.stock_left;
    }
    return answer;
  }

  json create(const json& request, const quire::Call& call) const {
    return std::visit(kWrites, client_.create(bytes(request, "key"), bytes(request, "value"), ttl(request), call));
  }

  json put(const json& request, const quire::Call& call) const {
    return written(client_.put(bytes(request, "key"), bytes(request, "value"), ttl(request), call));
  }

  json update(const json& request, const quire::Call& call) const {
    return std::visit(kWrites,
                      client_.update(bytes(request, "key"), bytes(request, "value"),
                                     optional<std::uint64_t>(request, "expected_version"), ttl(request), call));
  }

  json retrieve(const json& request, const quire::Call& call) const {
    const auto entry = client_.retrieve(bytes(request, "key"), call);
    if (!entry) {
      return outcome("no_such_key");
    }
    json answer = {{"value", base64(*entry->value)}, {"version", entry->version}};
    if (entry->time_left) {
      answer["ttl_ms"] = entry->time_left->count();
    }
    return answer;
  }

  json remove(const json& request, const quire::Call& call) const {
    return std::visit(
        kWrites, client_.remove(bytes(request, "key"), optional<std::uint64_t>(request, "expected_version"), call));
  }

  json scan(const json& request, const quire::Call& call) const {
    const bool keys_only = request.value("keys_only", false);
    json answer = {{"keys", json::array()}};
    for (const auto& entry : client_.scan(bytes(request, "prefix"), keys_only, call)) {
      answer["keys"].push_back(base64(entry.key));
      if (!keys_only) {
        answer["values"].push_back(entry.value ? json(base64(*entry.value)) : json());
      }
    }
    if (!keys_only) {
      answer.emplace("values", json::array());
    }
    return answer;
  }

  json watch(const json& request, const quire::Call& call) const {
    static constexpr std::array kKinds = {"started", "put", "deleted", "expired"};
    auto events = client_.watch(bytes(request, "prefix"), call);
    events.next();
    say({{"n", request.at("n")}, {"started", true}});
    json answer = {{"keys", json::array()}, {"kinds", json::array()}};
    while (answer["keys"].size() < request.value("events", std::size_t{0})) {
      const auto event = events.next();
      if (!event) {
        break;
      }
      answer["keys"].push_back(base64(event->key));
      answer["kinds"].push_back(kKinds.at(static_cast<std::size_t>(event->kind)));
    }
    return answer;
  }

  json list(const json& /*request*/, const quire::Call& call) const {
    return {{"ids", each_of(admin().list(call), id)}};
  }

  json restock(const json& request, const quire::Call& call) const {
    return {{"raised", admin().restock(optional<std::int32_t>(request, "amount"), call)}};
  }

  json update_price(const json& request, const quire::Call& call) const {
    const auto change = admin().update_price(request.at("id"), request.at("cents"), call);
    return change ? json{{"before", change->cents_before}, {"after", change->cents_after}}
                  : json{{"before", nullptr}, {"after", nullptr}};
  }

  json log(const json& request, const quire::Call& call) const {
    return {{"numbers", each_of(admin().log(call), number, request.value("limit", SIZE_MAX))}};
  }

  json tail_log(const json& request, const quire::Call& call) const {
    return {{"numbers", each_of(admin().tail_log(optional<std::int64_t>(request, "after"), call), number,
                                request.value("entries", SIZE_MAX))}};
  }

  quire::Client client_;
  std::optional<quire::Operator> operator_;
};

json fault(const char* error, const quire::Fault& fault) {
  return {{"error", error}, {"code", quire::code_name(fault.code())}, {"message", fault.what()}};
}

json answer(const Driver& driver, const json& request) {
  try {
    return driver.answer(request);
  } catch (const quire::Refused& refused) {
    return fault("refused", refused);
  } catch (const quire::Unreachable& unreachable) {
    return fault("unreachable", unreachable);
  } catch (const quire::OutcomeUnknown& unknown) {
    return fault("outcome_unknown", unknown);
  } catch (const std::exception& error) {
    return {{"error", "argument"}, {"message", error.what()}};
  }
}

quire::Options options(const std::vector<std::string>& words) {
  quire::Options options{.addresses = quire::Address::parse_list(words.at(0))};
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const auto& value = words.at(i + 1);
    if (words[i] == "--token") {
      options.token = value;
    } else if (words[i] == "--retries") {
      options.retries = static_cast<std::uint32_t>(std::stoul(value));
    } else if (words[i] == "--ca") {
      options.tls.roots = read_file(value);
    } else if (words[i] == "--certificate") {
      options.tls.certificate = read_file(value);
    } else if (words[i] == "--key-file") {
      options.tls.key = read_file(value);
    } else {
      throw std::invalid_argument("there is no flag '" + words[i] + "'");
    }
  }
  for (auto& address : options.addresses) {
    address.tls = address.tls || !options.tls.roots.empty();
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  std::ios::sync_with_stdio(false);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.at(0) == "bench") {
      say(bench({words.begin() + 1, words.end()}));
      return 0;
    }
    const Driver driver(options(words));
    std::counting_semaphore<kAtOnce> places(kAtOnce);
    for (std::string line; std::getline(std::cin, line);) {
      places.acquire();
      std::thread([&driver, &places, line] {
        const auto request = json::parse(line);
        auto reply = answer(driver, request);
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
