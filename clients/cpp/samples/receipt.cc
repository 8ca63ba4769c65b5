// Keeps the receipt of a purchase in a file, with which anyone can verify it without the server.
#include <quire/client.h>

#include <fstream>
#include <iostream>

int main(int count, char** arguments) {
  const quire::Client client({.addresses = {quire::Address::parse(count > 1 ? arguments[1] : "127.0.0.1:10086")}});
  const auto purchase = client.buy(53573);
  const auto receipt = client.receipt(purchase.number, purchase.key).receipt.value();
  std::ofstream("my.tlog-proof") << receipt.text;
  // It proves little if it comes from the same server as the receipt; the shop publishes it elsewhere as well.
  std::ofstream("log-key") << receipt.log_key << '\n';
  std::cout << "kept: purchase " << purchase.number << "\nverify it: quire receipt my.tlog-proof --key log-key\n";
}
