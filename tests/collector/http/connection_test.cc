// The bounds of a connection: how large a request may be, how long it may take, and who is not waited for.
#include "collector/http/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace gpuprobe::http {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{20};  // runs out in a test
constexpr milliseconds kLongWait{60'000};

struct Pair {
  explicit Pair(const ConnectionLimits& limits) : fds(Make()), connection(fds[0], limits) {}
  ~Pair() { Hang(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  void Hang() {
    if (fds[1] >= 0) close(fds[1]);
    fds[1] = -1;
  }
  void Send(const std::string& text) const {
    ASSERT_EQ(write(fds[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string Read(size_t size) {
    std::string text(size, '\0');
    size_t used = 0;
    while (used < size) {
      const ssize_t n = connection.read(text.data() + used, size - used);
      if (n <= 0) break;
      used += static_cast<size_t>(n);
    }
    text.resize(used);
    return text;
  }

  std::array<int, 2> fds;
  Connection connection;

 private:
  static std::array<int, 2> Make() {
    std::array<int, 2> made{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.data()), 0);
    return made;
  }
};

ConnectionLimits Patient() {
  return {.request_bytes = 64,
          .idle = kLongWait,
          .request = kLongWait,
          .write_stall = kLongWait,
          .answer = kLongWait};
}

TEST(Connection, ReadsWhatComes) {
  Pair pair(Patient());
  pair.Send("GET / HTTP/1.1");
  ASSERT_TRUE(pair.connection.AwaitRequest());
  EXPECT_TRUE(pair.connection.is_readable());
  EXPECT_EQ(pair.Read(14), "GET / HTTP/1.1");
  EXPECT_FALSE(pair.connection.is_readable());
}

TEST(Connection, EndsARequestThatIsTooLarge) {
  Pair pair(Patient());
  pair.Send(std::string(100, 'x'));
  ASSERT_TRUE(pair.connection.AwaitRequest());
  EXPECT_EQ(pair.Read(100).size(), 64U);
  // The next one has its own bound.
  ASSERT_TRUE(pair.connection.AwaitRequest());
  EXPECT_EQ(pair.Read(36).size(), 36U);
}

TEST(Connection, DoesNotWaitForeverForARequestToBeginOrToEnd) {
  ConnectionLimits limits = Patient();
  limits.idle = kShort;
  Pair idle(limits);
  EXPECT_FALSE(idle.connection.AwaitRequest());
  limits = Patient();
  limits.request = kShort;
  Pair slow(limits);
  slow.Send("GET");
  ASSERT_TRUE(slow.connection.AwaitRequest());
  EXPECT_EQ(slow.Read(14), "GET");
}

TEST(Connection, DoesNotWaitForeverForWhoDoesNotRead) {
  ConnectionLimits limits = Patient();
  limits.write_stall = kShort;
  Pair pair(limits);
  pair.Send("x");
  ASSERT_TRUE(pair.connection.AwaitRequest());
  const std::string much(1 << 16, 'x');
  ssize_t n = 0;
  for (int i = 0; i < 1000 && n >= 0; ++i) n = pair.connection.write(much.data(), much.size());
  EXPECT_EQ(n, -1);
}

TEST(Connection, EndsAnAnswerThatTakesTooLongUnlessItHasNoEnd) {
  ConnectionLimits limits = Patient();
  limits.request = milliseconds(0);
  limits.answer = milliseconds(0);
  Pair pair(limits);
  pair.Send("x");
  ASSERT_TRUE(pair.connection.AwaitRequest());
  EXPECT_EQ(pair.connection.write("a", 1), -1);
  pair.connection.LetAnswerGoOn();
  EXPECT_EQ(pair.connection.write("a", 1), 1);
}

TEST(Connection, KnowsWhenTheOtherSideHasGone) {
  Pair pair(Patient());
  EXPECT_FALSE(pair.connection.IsGone());
  pair.Hang();
  EXPECT_TRUE(pair.connection.IsGone());
  EXPECT_FALSE(pair.connection.AwaitRequest());
  EXPECT_EQ(pair.connection.write("a", 1), -1);
}

}  // namespace
}  // namespace gpuprobe::http
