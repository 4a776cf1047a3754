// Real munged processes, on sockets and with keys of their own: which user's credentials open, how often and
// for how long.
#include "collector/hub/munge.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::hub {
namespace {

constexpr char kProgram[] = "/usr/sbin/munged";
constexpr std::chrono::seconds kPatience{20};
constexpr uid_t kNobody = 65534;

class Daemon {
 public:
  explicit Daemon(const std::string& key) {
    // The daemon wants a key that nobody else can read, and a socket that everybody can reach.
    chmod(folder_.path().c_str(), 0755);
    std::ofstream(folder_.File("key")) << key;
    chmod(folder_.File("key").c_str(), 0400);
    pid_ = fork();
    if (pid_ != 0) return;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    const auto option = [this](const char* name, const char* file) {
      return "--" + std::string(name) + "=" + folder_.File(file);
    };
    execl(kProgram, kProgram, "--foreground", option("socket", "socket").c_str(),
          option("key-file", "key").c_str(), option("pid-file", "pid").c_str(),
          option("seed-file", "seed").c_str(), nullptr);
    _exit(127);
  }
  ~Daemon() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  std::string socket() const { return folder_.File("socket"); }
  std::shared_ptr<const Munge> Opened() const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (access(socket().c_str(), F_OK) != 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    absl::StatusOr<std::shared_ptr<const Munge>> munge = Munge::Open(socket());
    EXPECT_TRUE(munge.ok()) << munge.status();
    return munge.ok() ? *munge : nullptr;
  }

 private:
  testing::TempDir folder_;
  pid_t pid_;
};

// What another user's process seals.
std::string SealedBy(uid_t user, const std::string& socket) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(user, user, user) != 0) _exit(1);
    const absl::StatusOr<std::shared_ptr<const Munge>> munge = Munge::Open(socket);
    if (!munge.ok()) _exit(2);
    const absl::StatusOr<std::string> sealed = (*munge)->Seal("theirs");
    if (!sealed.ok()) _exit(3);
    _exit(write(ends[1], sealed->data(), sealed->size()) > 0 ? 0 : 4);
  }
  close(ends[1]);
  std::string sealed(4096, '\0');
  const ssize_t n = read(ends[0], sealed.data(), sealed.size());
  sealed.resize(n > 0 ? static_cast<size_t>(n) : 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return sealed;
}

class MungeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kProgram, X_OK) != 0) GTEST_SKIP() << "munge is not installed";
  }
  const std::string key_ = std::string(64, 'k');
};

TEST_F(MungeTest, OneHostSealsAndAnotherOpensOnce) {
  const Daemon here(key_);
  const Daemon there(key_);
  const auto ours = here.Opened();
  const auto theirs = there.Opened();
  ASSERT_TRUE(ours != nullptr && theirs != nullptr);
  EXPECT_EQ(ours->uid(), geteuid());
  const absl::StatusOr<std::string> sealed = ours->Seal("a key");
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  EXPECT_EQ(sealed->find("a key"), std::string::npos);
  const Munge::Opened opened = theirs->Unseal(*sealed);
  EXPECT_EQ(opened.error, Munge::kNone);
  EXPECT_EQ(opened.text, "a key");
  const Munge::Opened again = theirs->Unseal(*sealed);
  EXPECT_EQ(again.error, Munge::kReplayed);
  EXPECT_EQ(again.text, "");
}

TEST_F(MungeTest, ACredentialExpires) {
  const Daemon daemon(key_);
  const auto munge = daemon.Opened();
  ASSERT_NE(munge, nullptr);
  const absl::StatusOr<std::string> sealed = munge->Seal("a key", 1);
  ASSERT_TRUE(sealed.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  const Munge::Opened opened = munge->Unseal(*sealed);
  EXPECT_EQ(opened.error, Munge::kExpired);
  EXPECT_EQ(opened.text, "");
}

TEST_F(MungeTest, AnotherSitesKeyOpensNothing) {
  const Daemon here(key_);
  const Daemon stranger(std::string(64, 's'));
  const auto ours = here.Opened();
  const auto theirs = stranger.Opened();
  ASSERT_TRUE(ours != nullptr && theirs != nullptr);
  EXPECT_EQ(theirs->Unseal(*ours->Seal("a key")).error, Munge::kInvalid);
  EXPECT_NE(theirs->Unseal("MUNGE:garbage:").error, Munge::kNone);
  EXPECT_NE(theirs->Unseal("").error, Munge::kNone);
  EXPECT_NE(theirs->Unseal(std::string(7000, 'A')).error, Munge::kNone);
}

TEST_F(MungeTest, AnotherUsersCredentialIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Daemon daemon(key_);
  const auto munge = daemon.Opened();
  ASSERT_NE(munge, nullptr);
  const Munge::Error error = munge->Unseal(SealedBy(kNobody, daemon.socket())).error;
  EXPECT_EQ(error, Munge::kUnauthorized);
  EXPECT_EQ(Munge::Explain("n1:9461", error), "n1:9461 is the hub of another user, as munge says");
}

TEST_F(MungeTest, WithoutADaemonThereIsNone) {
  const testing::TempDir folder;
  EXPECT_TRUE(absl::IsNotFound(Munge::Open(folder.File("socket")).status()));
}

TEST(Munge, EachReasonIsOneLineWithARemedyOrACause) {
  for (const int error : {6, 8, 13, 14, 15, 16, 17, 18, 1000, 1001, -1}) {
    const std::string line = Munge::Explain("n1:9461", error);
    EXPECT_NE(line.find("n1:9461"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace gpuprobe::hub
