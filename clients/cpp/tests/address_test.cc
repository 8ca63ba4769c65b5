#include <gtest/gtest.h>

#include "quire/client.h"

namespace quire {
namespace {

TEST(Address, FormsOfAnAddress) {
  const auto check = [](const char* text, const char* host, int port, bool tls) {
    const auto address = Address::parse(text);
    EXPECT_EQ(address.host, host) << text;
    EXPECT_EQ(address.port, port) << text;
    EXPECT_EQ(address.tls, tls) << text;
  };
  check("books:80", "books", 80, false);
  check("books", "books", 10086, false);
  check(":80", "127.0.0.1", 80, false);
  check("https://[::1]:80/", "[::1]", 80, true);
  check("http://books", "books", 10086, false);
}

TEST(Address, WhatIsNoneIsNamedWithWhatWouldBeRight) {
  const auto check = [](const char* text, const std::string& want) {
    try {
      Address::parse_list(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), want);
    }
  };
  check("ftp://a:1", "'ftp://a:1' is no address; it must be http://a:1 or https://a:1");
  check("http://a:1/b", "'http://a:1/b' is no address; it must be without a path: http://a:1");
  check("a:x", "'a:x' is no address; it must be HOST:PORT with a port up to 65535, as a:10086");
  check("a:0", "'a:0' is no address; it must be HOST:PORT with a port from 1 to 65535, as a:10086");
  check("a:1,", "'' is no address; it must be HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
  check("a\x1b", "'a\x1b' is no address; it must be HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
}

}  // namespace
}  // namespace quire
