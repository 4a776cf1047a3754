#include "collector/ingest/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
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

  void SetUp() override { Restart({}); }
  void Restart(const ClientLimits& limits) {
    server_.reset();
    auto server = Server::Start(
        socket_,
        [this](const v1::Hello& hello, std::string_view) {
          return absl::StatusOr<std::unique_ptr<FrameSink>>(
              std::make_unique<CountingSink>(*this, hello.identity().rank()));
        },
        limits);
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
  EXPECT_THAT(garbage.ReadToEnd(), HasSubstr("a frame claims more"));
  EXPECT_THAT(huge.ReadToEnd(), HasSubstr("a frame claims more"));
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

TEST_F(ServerTest, BeforeHelloAFrameIsSmall) {
  Client client(socket_);
  client.Send(std::string("\x80\x80\x80\x01", 4) + std::string(1000, 'x'));  // 2 MiB
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() == 1; }));
  EXPECT_THAT(client.ReadToEnd(), HasSubstr("more than the 65536 bytes"));
}

// A Hello of exactly so many bytes.
v1::Frame HelloOf(size_t bytes) {
  v1::Frame frame = HelloFrame(MakeHello(0));
  std::string* text = frame.mutable_hello()->mutable_identity()->mutable_executable();
  while (frame.ByteSizeLong() < bytes) text->append(bytes - frame.ByteSizeLong(), 'x');
  while (frame.ByteSizeLong() > bytes) text->pop_back();
  return frame;
}

TEST_F(ServerTest, TheBoundBeforeHelloIsExact) {
  constexpr size_t kMost = ClientLimits{}.hello_bytes;
  for (const size_t bytes : {kMost - 1, kMost, kMost + 1}) {
    const v1::Frame hello = HelloOf(bytes);
    ASSERT_EQ(hello.ByteSizeLong(), bytes);
    const size_t greeted = server_->greeted();
    Client client(socket_);
    client.Send(Stream({hello}));
    EXPECT_TRUE(PollUntil([&] { return server_->greeted() > greeted || server_->dropped() > 0; }));
    EXPECT_EQ(server_->dropped(), bytes > kMost ? 1u : 0u) << bytes;
    if (bytes > kMost) {
      EXPECT_THAT(client.ReadToEnd(), HasSubstr("more than the 65536 bytes"));
    }
  }
}

TEST_F(ServerTest, TheBoundOfAFrameIsExact) {
  constexpr size_t kMost = 20'000;
  Restart({.frame_bytes = kMost});
  Client other(socket_);
  other.Send(Stream({HelloFrame(MakeHello(1))}));
  for (const size_t bytes : {kMost, kMost + 1}) {
    v1::Frame frame = BatchBuilder().Frame();
    std::string* text = frame.mutable_batch()->add_strings()->mutable_value();
    while (frame.ByteSizeLong() < bytes) text->append(bytes - frame.ByteSizeLong(), 'x');
    while (frame.ByteSizeLong() > bytes) text->pop_back();
    ASSERT_EQ(frame.ByteSizeLong(), bytes);
    Client client(socket_);
    client.Send(Stream({HelloFrame(MakeHello(0)), frame}));
    EXPECT_TRUE(PollUntil([&] { return batches_[0] == 1 && (bytes == kMost || server_->dropped() == 1); }));
    if (bytes > kMost) {
      EXPECT_THAT(client.ReadToEnd(), HasSubstr("more than the 20000 bytes"));
    }
  }
  EXPECT_EQ(batches_[0], 1);
  other.Send(Stream({BatchBuilder().Frame()}));
  EXPECT_TRUE(PollUntil([&] { return batches_[1] == 1; }));
}

TEST_F(ServerTest, OfWhomSaysNothingItIsFreeAfterAWhile) {
  Restart({.hello_wait = milliseconds(100)});
  Client silent(socket_);
  Client slow(socket_);
  slow.Send("\x7f");
  Client good(socket_);
  good.Send(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame()}));
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() == 2; }));
  EXPECT_THAT(silent.ReadToEnd(), HasSubstr("did not send Hello"));
  EXPECT_EQ(server_->clients(), 1u);
  good.Send(Stream({BatchBuilder(2).Frame(), ByeFrame(2)}));
  EXPECT_TRUE(PollUntil([&] { return batches_[0] == 2; }));
}

TEST_F(ServerTest, UnfinishedFramesAreBoundedAndWhoHoldsMostGoes) {
  Restart({.unfinished_bytes = size_t{4} << 20});
  Client good(socket_);
  good.Send(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame()}));
  std::vector<Client> hogs;
  for (int i = 1; i <= 8; ++i) {
    hogs.emplace_back(socket_);
    hogs.back().Send(Stream({HelloFrame(MakeHello(i))}) + std::string("\x80\x80\x80\x05", 4));  // 10 MiB
    const std::string part(100'000, 'x');
    for (int sent = 0; sent < 15; ++sent) {
      if (!hogs.back().Send(part)) break;
      server_->Poll(milliseconds(0));
    }
  }
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() >= 4; }));
  EXPECT_LT(server_->dropped(), 8u);
  good.Send(Stream({BatchBuilder(2).Frame(), ByeFrame(2)}));
  EXPECT_TRUE(PollUntil([&] { return batches_[0] == 2; }));
}

TEST_F(ServerTest, MoreClientsThanItServesAreToldSo) {
  Restart({.clients = 1});
  Client first(socket_);
  first.Send(Stream({HelloFrame(MakeHello(0))}));
  EXPECT_TRUE(PollUntil([&] { return server_->greeted() == 1; }));
  Client second(socket_);
  EXPECT_TRUE(PollUntil([&] { return server_->dropped() == 1; }));
  EXPECT_THAT(second.ReadToEnd(), HasSubstr("has 1 clients already"));
  first.Close();
  EXPECT_TRUE(PollUntil([&] { return server_->clients() == 0; }));
  Client third(socket_);
  third.Send(Stream({HelloFrame(MakeHello(3)), BatchBuilder().Frame()}));
  EXPECT_TRUE(PollUntil([&] { return batches_[3] == 1; })) << "its place is free again";
}

TEST_F(ServerTest, WithoutDescriptorsItWaitsWithoutSpinning) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UBSan opens a pipe to find out whether it can read an object, and takes a failure for a bad object";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Client client(socket_);
  const int next = dup(0);
  close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int rounds = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - begin < milliseconds(400); ++rounds)
    server_->Poll(milliseconds(50));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(rounds, 30);
  client.Send(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame()}));
  EXPECT_TRUE(PollUntil([&] { return batches_[0] == 1; })) << "it comes in later";
}

TEST(Warnings, AFewAtOnceAndTheOthersAreCounted) {
  Warnings warnings;
  const Warnings::Clock::time_point now = Warnings::Clock::now();
  int passed = 0;
  for (int i = 0; i < 100; ++i) {
    std::string text = "trouble";
    passed += warnings.Pass(text, now) ? 1 : 0;
  }
  EXPECT_EQ(passed, 5);
  std::string text = "trouble";
  EXPECT_TRUE(warnings.Pass(text, now + Warnings::kPer));
  EXPECT_EQ(text, "trouble (95 more omitted)");
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
