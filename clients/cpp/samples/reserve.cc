// Reserves a copy and buys it; then reserves another, and comes too late.
#include <quire/client.h>

#include <iostream>
#include <thread>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  const auto held = client.reserve(53477, {}, std::chrono::seconds(60));
  std::cout << "held: " << held.stock_left.value_or(0) << " left\n";
  const auto bought = client.confirm(held.key);
  std::cout << "bought: purchase " << bought.number << '\n';

  const auto brief = client.reserve(53477, {}, std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const auto late = client.confirm(brief.key);
  if (std::holds_alternative<quire::Expired>(late.outcome)) {
    std::cout << "too late: " << late.stock_left.value_or(0) << " left\n";
  }
}
