#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

#include "quire/client.h"

namespace quire {
namespace {

bool is_digit(char each) { return each >= '0' && each <= '9'; }

/// A name, an IPv4 address, an IPv6 address in brackets, or nothing.
bool is_host(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    std::array<unsigned char, sizeof(in6_addr)> address{};
    return inet_pton(AF_INET6, std::string(text.substr(1, text.size() - 2)).c_str(), address.data()) == 1;
  }
  return std::ranges::all_of(text, [](char each) {
    return is_digit(each) || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || each == '.' ||
           each == '-' || each == '_';
  });
}

}  // namespace

Address Address::parse(std::string_view text) {
  const auto wrong = [text](const std::string& want) {
    return std::invalid_argument('\'' + std::string(text) + "' is no address; it must be " + want);
  };
  Address address;
  auto rest = text;
  if (const auto at = text.find("://"); at != std::string_view::npos) {
    rest = text.substr(at + 3);
    const auto scheme = text.substr(0, at);
    if (scheme != "http" && scheme != "https") {
      throw wrong("http://" + std::string(rest) + " or https://" + std::string(rest));
    }
    address.tls = scheme == "https";
    if (rest.ends_with('/')) {
      rest.remove_suffix(1);
    }
  }
  if (const auto at = rest.find('/'); at != std::string_view::npos) {
    throw wrong("without a path: " + std::string(text.data(), rest.data() + at));
  }
  const auto usual = std::to_string(Address{}.port);
  auto host = rest;
  if (const auto at = rest.rfind(':'); !is_host(rest) || rest.empty()) {
    host = rest.substr(0, at);
    if (at == std::string_view::npos || !is_host(host)) {
      throw wrong("HOST:PORT, as 127.0.0.1:" + usual + " or [::1]:" + usual);
    }
    const auto port = rest.substr(at + 1);
    const auto [end, error] = std::from_chars(port.begin(), port.end(), address.port);
    if (error != std::errc() || end != port.end()) {
      throw wrong("HOST:PORT with a port up to 65535, as " + std::string(host) + ':' + usual);
    }
    if (address.port == 0) {
      throw wrong("HOST:PORT with a port from 1 to 65535, as " + std::string(host) + ':' + usual);
    }
  }
  if (!host.empty()) {
    address.host = host;
  }
  return address;
}

std::vector<Address> Address::parse_list(std::string_view text) {
  std::vector<Address> addresses;
  while (true) {
    const auto comma = text.find(',');
    addresses.push_back(parse(text.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return addresses;
    }
    text.remove_prefix(comma + 1);
  }
}

}  // namespace quire
