// Watches a key while it is put.
#include <quire/client.h>

#include <iostream>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  for (const auto& event : client.watch("greeting")) {
    if (event.kind == quire::EventKind::kStarted) {
      std::cout << "watching\n";
      client.put("greeting", "hello");
    } else if (event.kind == quire::EventKind::kPut) {
      std::cout << "put " << event.key << " = " << event.value.value_or("") << '\n';
      break;
    }
  }
}
