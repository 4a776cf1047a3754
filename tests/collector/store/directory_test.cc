// What somebody else with access to a directory can and cannot do to a run that is recorded in it.
#include "collector/store/directory.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "collector/store/run_directory.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::store {
namespace {

namespace fs = std::filesystem;
using gpuprobe::testing::TempDir;
using ::testing::HasSubstr;

constexpr uid_t kVictim = 12346;
constexpr uid_t kAttacker = 12345;

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// In a child of this user, whose only group is `group`; whether `body` returned true.
bool AsUser(uid_t user, gid_t group, const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const bool changed =
        setresgid(group, group, group) == 0 && setgroups(0, nullptr) == 0 && setresuid(user, user, user) == 0;
    _exit(changed && body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Refused(const absl::StatusOr<Directory>& directory, const std::string& why) {
  const std::string said(directory.status().message());
  if (!directory.ok() && said.find(why) != std::string::npos && said.find("--out") != std::string::npos)
    return true;
  std::fprintf(stderr, "not refused because of \"%s\": \"%s\"\n", why.c_str(), said.c_str());
  return false;
}

TEST(Directory, MakesParentsAndFreeNames) {
  const TempDir dir;
  const std::string path = dir.File("a/b/run");
  for (const char* expected : {"", "-2", "-3"}) {
    const auto made = Directory::MakeNew(path);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->path(), path + expected);
    EXPECT_TRUE(fs::is_directory(path + expected));
  }
}

TEST(Directory, IsNeverWritableByTheGroupWhateverTheUmask) {
  const TempDir dir;
  const mode_t before = umask(0);
  const auto made = Directory::Make(dir.File("run"));
  ASSERT_TRUE(made->WriteFile("file", "x").ok());
  umask(before);
  struct stat st {};
  ASSERT_EQ(stat(dir.File("run").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0755u);
  ASSERT_EQ(stat(dir.File("run/file").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0644u);
}

TEST(Directory, FilesStayInTheDirectoryThatWasOpened) {
  const TempDir dir;
  const auto run = Directory::Make(dir.File("run"));
  fs::create_directory(dir.File("home"));
  fs::rename(dir.File("run"), dir.File("moved"));
  fs::create_directory_symlink(dir.File("home"), dir.File("run"));
  ASSERT_TRUE(run->WriteFile("report.json", "{}").ok());
  EXPECT_EQ(ReadWhole(dir.File("moved/report.json")), "{}");
  EXPECT_TRUE(fs::is_empty(dir.File("home")));
  run->RemoveIfEmpty();
  EXPECT_TRUE(fs::exists(dir.File("run"))) << "not ours under that name";
}

TEST(Directory, NothingIsWrittenThroughALink) {
  const TempDir dir;
  const auto run = Directory::Make(dir.File("run"));
  std::ofstream(dir.File("precious")) << "precious";
  for (const char* name : {"report.json", "report.json.tmp", "rank-0.gpr"})
    fs::create_symlink(dir.File("precious"), dir.File("run/") + name);
  EXPECT_TRUE(run->WriteFile("report.json", "{}").ok());
  EXPECT_EQ(ReadWhole(dir.File("run/report.json")), "{}");
  EXPECT_FALSE(fs::is_symlink(dir.File("run/report.json")));
  EXPECT_EQ(run->CreateFile("rank-0.gpr").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadWhole(dir.File("precious")), "precious");
}

TEST(Directory, ALinkIsNoRunDirectory) {
  const TempDir dir;
  fs::create_directory(dir.File("target"));
  fs::create_directory_symlink(dir.File("target"), dir.File("link"));
  EXPECT_THAT(std::string(Directory::Make(dir.File("link")).status().message()), HasSubstr("symbolic link"));
  EXPECT_TRUE(Directory::Make(dir.File("link/run")).ok()) << "its parents may be links";
}

TEST(Directory, RefusesPlacesWhereOthersCouldExchangeIt) {
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  EXPECT_TRUE(Refused(Directory::Make(dir.File("run")), "can be written by every user"));
  EXPECT_TRUE(Refused(Directory::MakeNew(dir.File("run")), "can be written by every user"));
  EXPECT_FALSE(fs::exists(dir.File("run")));
  fs::permissions(dir.path(), fs::perms::all | fs::perms::sticky_bit);
  EXPECT_TRUE(Directory::Make(dir.File("run")).ok());
}

TEST(Directory, OfAnotherUserIsRefusedUnlessAGroupSharesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: it acts as another user";
  constexpr gid_t kProject = 4711;
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  const auto make = [&](const char* name, uid_t owner, gid_t group, mode_t mode) {
    fs::create_directory(dir.File(name));
    ASSERT_EQ(chown(dir.File(name).c_str(), owner, group), 0);
    ASSERT_EQ(chmod(dir.File(name).c_str(), mode), 0);
  };
  make("theirs", kAttacker, kAttacker, 0777);
  make("sticky", kAttacker, kAttacker, 01777);
  make("project", kAttacker, kProject, 02770);
  make("roots", 0, kProject, 0775);
  EXPECT_TRUE(AsUser(kVictim, kProject,
                     [&] { return Refused(Directory::Make(dir.File("theirs/run")), "every user"); }));
  EXPECT_TRUE(
      AsUser(kVictim, kProject, [&] { return Refused(Directory::Make(dir.File("theirs")), "every user"); }));
  EXPECT_TRUE(AsUser(kVictim, kProject, [&] {
    return Refused(Directory::Make(dir.File("sticky/run")), "another user (uid 12345)");
  }));
  EXPECT_TRUE(AsUser(kVictim, kProject, [&] { return Directory::Make(dir.File("project/run")).ok(); }));
  EXPECT_TRUE(AsUser(kVictim, kProject, [&] { return Directory::Make(dir.File("roots/a/run")).ok(); }));
  EXPECT_TRUE(Directory::Make(dir.File("project/of-root")).ok()) << "a container's root in a mounted folder";
}

// The attacker may rename what is in the directory, because they share a group, and does so all the time.
TEST(Directory, ExchangedWhileItIsWrittenNothingLandsElsewhere) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: it acts as two users";
  constexpr gid_t kProject = 4711;
  constexpr int kRuns = 300;
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  fs::create_directory(dir.File("shared"));
  fs::create_directory(dir.File("home"));
  ASSERT_EQ(chown(dir.File("shared").c_str(), kAttacker, kProject), 0);
  ASSERT_EQ(chmod(dir.File("shared").c_str(), 02770), 0);
  ASSERT_EQ(chown(dir.File("home").c_str(), kVictim, kVictim), 0);
  const std::string run = dir.File("shared/run");
  const pid_t attacker = fork();
  if (attacker == 0) {
    if (setresgid(kProject, kProject, kProject) != 0 || setgroups(0, nullptr) != 0 ||
        setresuid(kAttacker, kAttacker, kAttacker) != 0)
      _exit(1);
    for (int i = 0;; ++i) {
      if (rename(run.c_str(), (run + "-" + std::to_string(i)).c_str()) == 0)
        (void)!symlink(dir.File("home").c_str(), run.c_str());
      usleep(1);
      unlink(run.c_str());
    }
  }
  int recorded = 0;
  const bool survived = AsUser(kVictim, kProject, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int written = 0;
    for (int i = 0; (i < kRuns || written < 5) && std::chrono::steady_clock::now() < end; ++i) {
      const auto directory = PrepareRunDirectory(run);
      if (!directory.ok()) continue;
      directory->WriteFile("settings.txt", "x").IgnoreError();
      written += directory->WriteFile("report.json", "{}").ok() ? 1 : 0;
      directory->Remove("settings.txt");
    }
    return true;
  });
  kill(attacker, SIGKILL);
  waitpid(attacker, nullptr, 0);
  EXPECT_TRUE(survived);
  EXPECT_TRUE(fs::is_empty(dir.File("home"))) << fs::directory_iterator(dir.File("home"))->path();
  for (const auto& entry : fs::recursive_directory_iterator(dir.File("shared")))
    recorded += entry.path().filename() == "report.json" ? 1 : 0;
  EXPECT_GT(recorded, 0);
}

}  // namespace
}  // namespace gpuprobe::store
