// Asks a port where no one listens.
#include <quire/client.h>

int main() {
  const quire::Client client({.addresses = {quire::Address::parse("127.0.0.1:1")}, .retries = 0});
  try {
    client.ping();
  } catch (const quire::Unreachable& unreachable) {
    return unreachable.was_sent() ? 1 : 0;
  }
  return 1;
}
