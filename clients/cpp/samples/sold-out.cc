// Buys every copy that is left, and handles each outcome.
#include <quire/client.h>

#include <iostream>

namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;

/// Gives how many copies are left.
int buy(const quire::Client& client, int quantity) {
  const auto purchase = client.buy(12498, {.quantity = quantity});
  const auto left = purchase.stock_left.value_or(0);
  std::visit(Match{
                 [&](quire::Bought) { std::cout << "bought: " << left << " left\n"; },
                 [&](quire::TooFew) { std::cout << "too few: " << left << " left\n"; },
                 [](quire::SoldOut) { std::cout << "sold out\n"; },
                 [](quire::NoSuchBook) { std::cout << "no such book\n"; },
                 [&](quire::NotBought) { std::cout << "not bought: " << purchase.message << '\n'; },
                 [&](const quire::Unknown&) { std::cout << "unknown: buy again with " << purchase.key << '\n'; },
             },
             purchase.outcome);
  return left;
}

}  // namespace

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  buy(client, 1);
  const int left = buy(client, 1000);
  buy(client, left);
  buy(client, 1);
}
