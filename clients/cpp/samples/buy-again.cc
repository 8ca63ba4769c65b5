// Sends one purchase twice: its key makes it happen once.
#include <quire/client.h>

#include <iostream>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  const auto key = quire::random_key();
  for (int i = 0; i < 2; ++i) {
    const auto purchase = client.buy(12365, {.key = key});
    std::cout << "purchase " << purchase.number << ", " << (purchase.replayed ? "replayed" : "new") << '\n';
  }
}
