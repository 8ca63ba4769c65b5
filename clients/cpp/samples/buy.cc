// Buys one copy.
#include <quire/client.h>

#include <iostream>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  const auto purchase = client.buy(53573);
  if (std::holds_alternative<quire::Bought>(purchase.outcome)) {
    std::cout << "bought: purchase " << purchase.number << ", " << purchase.stock_left.value_or(0) << " left\n";
  } else {
    std::cout << "not bought: " << purchase.message << '\n';
  }
}
