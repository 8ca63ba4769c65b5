// Prints the books of a topic.
#include <quire/client.h>

#include <cstdio>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  for (const auto& book : client.search("distributed systems")) {
    std::printf("%d %s: %d at %lld.%02lld\n", book.id, book.title.c_str(), book.stock,
                static_cast<long long>(book.price_cents / 100), static_cast<long long>(book.price_cents % 100));
  }
}
