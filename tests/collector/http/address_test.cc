// Where the page may be served, and which names of this host requests may use.
#include "collector/http/address.h"

#include <gtest/gtest.h>

namespace gpuprobe::http {
namespace {

TEST(Address, HasAllDocumentedForms) {
  struct Case {
    const char* text;
    const char* means;
    bool loopback;
  };
  const Case cases[] = {{"9500", "127.0.0.1:9500", true},
                        {":9500", "127.0.0.1:9500", true},
                        {"127.0.0.1:0", "127.0.0.1:0", true},
                        {"127.0.0.1", "127.0.0.1:9460", true},
                        {"localhost:9500", "127.0.0.1:9500", true},
                        {"[::1]:9500", "[::1]:9500", true},
                        {"[::1]", "[::1]:9460", true},
                        {"127.9.9.9:1", "127.9.9.9:1", true},
                        {"0.0.0.0:9500", "0.0.0.0:9500", false},
                        {"[::]:9500", "[::]:9500", false},
                        {"10.0.0.7:65535", "10.0.0.7:65535", false}};
  for (const Case& c : cases) {
    const auto address = ParseAddress(c.text);
    ASSERT_TRUE(address.ok()) << c.text << ": " << address.status();
    EXPECT_EQ(address->Text(), c.means) << c.text;
    EXPECT_EQ(address->IsLoopback(), c.loopback) << c.text;
  }
}

TEST(Address, RefusesWhatIsNone) {
  for (const char* text : {"", "65536", "-1", "127.0.0.1:http", "127.0.0.1:94 60", "node7:9460", "[::1",
                           "[::1]9460", "::1:9460", "127.0.0.1:9460:1", "256.0.0.1:1"}) {
    const auto address = ParseAddress(text);
    EXPECT_FALSE(address.ok()) << text;
    EXPECT_NE(address.status().message().find("HOST:PORT"), std::string_view::npos) << text;
  }
}

TEST(HostHeader, NamesLoopbackByNumberOrAsLocalhost) {
  for (const char* host : {"localhost", "LocalHost:9460", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:9460"})
    EXPECT_TRUE(NamesLoopback(host)) << host;
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1",
                           "[::2]", "0.0.0.0", "[::1"})
    EXPECT_FALSE(NamesLoopback(host)) << host;
}

TEST(Listener, TakesAFreePortAndSaysWhenOneIsTaken) {
  const auto first = Listener::Open({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_NE(first->address().port, 0);
  const auto second = Listener::Open(first->address());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("already in use"), std::string_view::npos) << second.status();
  const auto elsewhere = Listener::Open({.host = "192.0.2.1", .port = 0});
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_NE(elsewhere.status().message().find("not an address of this host"), std::string_view::npos);
}

}  // namespace
}  // namespace gpuprobe::http
