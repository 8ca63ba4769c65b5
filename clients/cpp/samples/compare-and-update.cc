// Updates a value only if no one else has changed it meanwhile.
#include <quire/client.h>

#include <iostream>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  if (std::holds_alternative<quire::Written>(client.create("counter", "1"))) {
    std::cout << "created 1\n";
  }
  const auto read = client.get("counter").value();
  for (const auto* value : {"2", "3"}) {
    const auto outcome = client.update("counter", value, read.version);
    if (std::holds_alternative<quire::Written>(outcome)) {
      std::cout << "updated " << value << '\n';
    } else if (std::holds_alternative<quire::AnotherVersion>(outcome)) {
      std::cout << "another version: read again\n";
    }
  }
}
