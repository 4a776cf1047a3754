#include "injector/send/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace gpuprobe::injector {
namespace {

TEST(SocketPlaces, TheConfiguredOneIsTheOnlyOne) {
  const SocketPlaces places = FindSocketPlaces("/x/y.sock", "/run/user/7", 7);
  ASSERT_EQ(places.count, 1);
  EXPECT_TRUE(places.configured);
  EXPECT_STREQ(places.paths[0].c_str(), "/x/y.sock");
}

TEST(SocketPlaces, OtherwiseTheUsersThenTheNodes) {
  const SocketPlaces places = FindSocketPlaces("", "/run/user/7", 7);
  ASSERT_EQ(places.count, 3);
  EXPECT_STREQ(places.paths[0].c_str(), "/run/user/7/gpuprobe/collector.sock");
  EXPECT_STREQ(places.paths[1].c_str(), "/tmp/gpuprobe-7/collector.sock");
  EXPECT_STREQ(places.paths[2].c_str(), "/run/gpuprobe/collector.sock");
  EXPECT_EQ(FindSocketPlaces(nullptr, nullptr, 7).count, 2);
}

TEST(SocketPlaces, APathThatNoSocketCanHaveIsNoPlace) {
  const std::string longest(200, 'x');
  EXPECT_EQ(FindSocketPlaces(("/" + longest).c_str(), nullptr, 7).count, 0);
  EXPECT_EQ(FindSocketPlaces(nullptr, ("/" + longest).c_str(), 7).count, 2);
}

class ConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/gpuprobe-connection-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = folder_ + "/s";
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  int Listen(int backlog) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd, backlog), 0);
    return fd;
  }
  std::string folder_;
  std::string path_;
};

TEST_F(ConnectionTest, NobodyThereIsAnAnswerAtOnce) {
  Connection connection;
  EXPECT_FALSE(connection.TryConnect(path_.c_str()));
  EXPECT_FALSE(connection.TryConnect(""));
  const int listener = Listen(1);
  close(listener);
  EXPECT_FALSE(connection.TryConnect(path_.c_str())) << "a socket that a dead collector left";
  EXPECT_FALSE(connection.open());
}

TEST_F(ConnectionTest, AListenerOfOurOwnUserIsTrusted) {
  const int listener = Listen(1);
  Connection connection;
  EXPECT_TRUE(connection.TryConnect(path_.c_str()));
  EXPECT_TRUE(connection.open());
  connection.Close();
  EXPECT_FALSE(connection.open());
  close(listener);
}

TEST_F(ConnectionTest, AListenerThatNeverAcceptsDoesNotBlockUs) {
  const int listener = Listen(0);
  Connection connections[8];
  int connected = 0;
  for (Connection& connection : connections) connected += connection.TryConnect(path_.c_str()) ? 1 : 0;
  EXPECT_LT(connected, 8);
  close(listener);
}

TEST_F(ConnectionTest, WithoutDescriptorsItFailsQuietly) {
  const int listener = Listen(1);
  std::vector<int> all;
  int fd = -1;
  while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) all.push_back(fd);
  Connection connection;
  EXPECT_FALSE(connection.TryConnect(path_.c_str()));
  for (const int other : all) close(other);
  EXPECT_TRUE(connection.TryConnect(path_.c_str()));
  close(listener);
}

}  // namespace
}  // namespace gpuprobe::injector
