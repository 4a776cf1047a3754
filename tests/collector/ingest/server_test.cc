#include "collector/ingest/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/client.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::ingest {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::ByeFrame;
using gpuprobe::testing::Client;
using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::Stream;
using gpuprobe::testing::TempDir;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  class CountingSink : public FrameSink {
   public:
    CountingSink(ServerTest& test, int rank) : test_(test), rank_(rank) {}
    absl::Status OnBatch(const v1::Batch&, std::string_view) override {
      ++test_.batches_[rank_];
      return absl::OkStatus();
    }
    void OnBye(const v1::Bye&, std::string_view) override {}
    void OnClosed(bool cut_off) override { (cut_off ? test_.cut_off_ : test_.ended_) += 1; }

   private:
    ServerTest& test_;
    int rank_;
  };

  void SetUp() override {
    auto server = Server::Start(socket_, [this](const v1::Hello& hello, std::string_view) {
      return absl::StatusOr<std::unique_ptr<FrameSink>>(
          std::make_unique<CountingSink>(*this, hello.identity().rank()));
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  template <typename Condition>
  bool PollUntil(Condition&& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) server_->Poll(milliseconds(10));
    return condition();
  }

  TempDir dir_;
  std::string socket_ = dir_.File("gpuprobe/collector.sock");
  std::map<int, int> batches_;
  int cut_off_ = 0;
  int ended_ = 0;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, ServesManyClientsAtOnce) {
  constexpr int kClients = 64;
  std::vector<Client> clients;
  for (int rank = 0; rank < kClients; ++rank) {
    clients.emplace_back(socket_);
    ASSERT_TRUE(clients.back().connected());
    ASSERT_TRUE(clients.back().Send(Stream({HelloFrame(MakeHello(rank, kClients)), BatchBuilder().Frame()})));
  }
  EXPECT_TRUE(PollUntil([&] { return batches_.size() == kClients; }));
  for (Client& client : clients) {
    client.Send(Stream({BatchBuilder(2).Frame(), ByeFrame(2)}));
    client.Close();
  }
  EXPECT_TRUE(PollUntil([&] { return ended_ == kClients; }));
  EXPECT_EQ(cut_off_, 0);
  EXPECT_EQ(server_->clients(), 0u);
}

TEST_F(ServerTest, ABadClientCostsThatClientOnly) {
  Client good(socket_);
  good.Send(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame()}));
  Client garbage(socket_);
  garbage.Send(std::string(100000, '\xff'));
  Client huge(socket_);
  huge.Send(std::string("\x80\x80\x80\x80\x10 and so on", 15));
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() == 2; }));
  EXPECT_EQ(garbage.ReadToEnd(), "");
  EXPECT_EQ(huge.ReadToEnd(), "");
  good.Send(Stream({BatchBuilder(2).Frame(), ByeFrame(2)}));
  good.Close();
  EXPECT_TRUE(PollUntil([&] { return ended_ == 1; }));
  EXPECT_EQ(batches_[0], 2);
}

TEST_F(ServerTest, AnotherMajorVersionHearsWhyBeforeItIsClosed) {
  v1::Hello hello = MakeHello(0);
  hello.set_protocol_major(2);
  Client client(socket_);
  client.Send(Stream({HelloFrame(hello)}));
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() == 1; }));
  EXPECT_THAT(client.ReadToEnd(), HasSubstr("this client speaks protocol 2.0, this collector 1.0"));
}

TEST_F(ServerTest, DrainTakesWhatWasSentBeforeItIncludingClientsNotYetAccepted) {
  Client client(socket_);
  client.Send(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame(), BatchBuilder(2).Frame()}));
  server_->Drain(milliseconds(100), milliseconds(2000));
  EXPECT_EQ(batches_[0], 2);
}

TEST_F(ServerTest, DrainAsksConnectedClientsToFlush) {
  Client client(socket_);
  client.Send(Stream({HelloFrame(MakeHello(0))}));
  EXPECT_TRUE(PollUntil([&] { return server_->greeted() == 1; }));
  server_->Drain(milliseconds(50), milliseconds(1000));
  server_.reset();
  v1::Frame frame;
  const std::string got = client.ReadToEnd();
  ASSERT_GT(got.size(), 1u);
  ASSERT_TRUE(frame.ParseFromString(got.substr(1)));
  EXPECT_TRUE(frame.control().flush());
}

TEST_F(ServerTest, PlaceIsPrivate) {
  struct stat st {};
  ASSERT_EQ(stat(socket_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(dir_.File("gpuprobe").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST_F(ServerTest, ASecondOneIsRefusedWithThePidOfTheFirst) {
  const auto second = Endpoint::Open(socket_);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_TRUE(Client(socket_).connected());
}

TEST_F(ServerTest, LeavesNothingBehind) {
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_));
  EXPECT_FALSE(std::filesystem::exists(socket_ + ".lock"));
}

TEST(Endpoint, ReplacesASocketThatACrashLeftBehind) {
  const TempDir dir;
  const std::string socket = dir.File("s.sock");
  std::ofstream(socket) << "stale";
  std::ofstream(socket + ".lock") << "12345\n";
  const auto endpoint = Endpoint::Open(socket);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_TRUE(Client(socket).connected());
}

TEST(Endpoint, RefusesPlacesWhereOthersCouldExchangeTheSocket) {
  const TempDir dir;
  std::filesystem::create_directory(dir.File("open"));
  std::filesystem::permissions(dir.File("open"), std::filesystem::perms::all);
  const auto refused = Endpoint::Open(dir.File("open/s.sock"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--socket"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.File("open")));
}

TEST(Endpoint, DoesNotLockOrListenThroughALink) {
  const TempDir dir;
  std::ofstream(dir.File("precious")) << "precious";
  std::filesystem::create_symlink(dir.File("precious"), dir.File("s.sock.lock"));
  EXPECT_FALSE(Endpoint::Open(dir.File("s.sock")).ok());
  std::filesystem::remove(dir.File("s.sock.lock"));
  std::filesystem::create_symlink(dir.File("precious"), dir.File("s.sock"));
  EXPECT_TRUE(Endpoint::Open(dir.File("s.sock")).ok()) << "the link is stale";
  std::ifstream in(dir.File("precious"));
  std::string text;
  EXPECT_TRUE(in >> text && text == "precious");
}

TEST(Endpoint, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: it makes another user's files";
  const TempDir dir;
  for (const char* name : {"gpuprobe-x", "theirs"}) {
    std::filesystem::create_directory(dir.File(name));
    ASSERT_EQ(chown(dir.File(name).c_str(), 12345, 12345), 0);
    const auto refused = Endpoint::Open(dir.File(std::string(name) + "/s.sock"));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << name;
  }
  std::ofstream(dir.File("s.sock.lock")) << "1\n";
  ASSERT_EQ(chown(dir.File("s.sock.lock").c_str(), 12345, 12345), 0);
  const auto locked = Endpoint::Open(dir.File("s.sock"));
  EXPECT_THAT(std::string(locked.status().message()), HasSubstr("another user"));
}

TEST(Endpoint, SaysThatAPathIsTooLongOrNotAPlace) {
  EXPECT_EQ(Endpoint::Open("/tmp/" + std::string(200, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto nowhere = Endpoint::Open("/dev/null/s.sock");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("/dev/null"));
}

TEST(Endpoint, DefaultPathFollowsTheTableOfNames) {
  setenv("GPUPROBE_SOCKET", "/x/y.sock", 1);
  EXPECT_EQ(DefaultSocketPath(), "/x/y.sock");
  unsetenv("GPUPROBE_SOCKET");
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultSocketPath(), "/run/user/7/gpuprobe/collector.sock");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultSocketPath(), "/tmp/gpuprobe-" + std::to_string(getuid()) + "/collector.sock");
}

}  // namespace
}  // namespace gpuprobe::ingest
