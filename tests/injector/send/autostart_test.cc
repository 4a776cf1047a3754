#include "injector/send/autostart.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

namespace fs = std::filesystem;

std::atomic<int> child_signals{0};

std::string Slurp(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t Ends(const std::string& text) {
  size_t ends = 0;
  for (size_t at = text.find("end\n"); at != std::string::npos; at = text.find("end\n", at + 1)) ++ends;
  return ends;
}

// Waits until `processes` have written their last line to `path`: who still writes would do so into a folder
// that is being removed.
std::string WaitFor(const fs::path& path, size_t processes = 1) {
  for (int i = 0; i < 1000; ++i) {
    std::string text = Slurp(path);
    if (Ends(text) >= processes) return text;
    usleep(10000);
  }
  return Slurp(path);
}

class AutostartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/gpuprobe-autostart-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    fs::create_directory(folder_ / "lib");
    fs::create_directory(folder_ / "bin");
    library_ = folder_ / "lib" / "libgpuprobe.so";
    child_signals = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++child_signals; };
    sigaction(SIGCHLD, &action, &before_);
  }
  void TearDown() override {
    sigaction(SIGCHLD, &before_, nullptr);
    fs::remove_all(folder_);
  }
  fs::path Script(const fs::path& path, const std::string& body) {
    std::ofstream(path) << "#!/bin/bash\n" << body;
    chmod(path.c_str(), 0755);
    return path;
  }
  SocketPlaces Places() { return FindSocketPlaces((folder_ / "s.sock").c_str(), nullptr, getuid()); }

  fs::path folder_;
  fs::path library_;
  struct sigaction before_ {};
};

TEST_F(AutostartTest, TheStartedProcessIsNobodysChild) {
  const fs::path out = folder_ / "out";
  const fs::path program =
      Script(folder_ / "program",
             "sleep 0.2; { cut -d' ' -f4,6 /proc/$$/stat; echo $$ $*; echo end; } > " + out.string());
  char* arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>("one"), nullptr};
  char* environment[] = {const_cast<char*>("PATH=/bin:/usr/bin"), nullptr};
  EXPECT_EQ(SpawnDetached(program.c_str(), arguments, environment), 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "the program has a child";
  EXPECT_EQ(errno, ECHILD);
  std::istringstream text(WaitFor(out));
  int parent = 0;
  int session = 0;
  int pid = 0;
  std::string argument;
  text >> parent >> session >> pid >> argument;
  EXPECT_NE(parent, getpid());
  EXPECT_EQ(session, pid) << "a session of its own";
  EXPECT_EQ(argument, "one");
  EXPECT_EQ(child_signals, 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(AutostartTest, TheStartedProcessInheritsNothingButItsEnvironment) {
  const fs::path out = folder_ / "out";
  // Descriptors without close-on-exec, ignored signals and handlers, as programs have them.
  const int leak = fcntl(STDOUT_FILENO, F_DUPFD, 100);
  signal(SIGUSR1, SIG_IGN);
  char* environment[] = {const_cast<char*>("A=b"), nullptr};
  // cp and find look at themselves: a shell would change signals and open descriptors of its own.
  const auto run = [&](const char* program, std::vector<std::string> arguments) {
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    fs::remove(out);
    EXPECT_EQ(SpawnDetached(program, pointers.data(), environment), 0);
    std::string text;
    for (int i = 0; i < 500 && text.empty(); ++i) {
      usleep(10000);
      text = Slurp(out);
    }
    usleep(20000);
    return Slurp(out);
  };
  const std::string status = run("/bin/cp", {"cp", "/proc/self/status", out.string()});
  EXPECT_NE(status.find("SigBlk:\t0000000000000000"), std::string::npos) << status;
  EXPECT_NE(status.find("SigIgn:\t0000000000000000"), std::string::npos) << status;
  EXPECT_NE(status.find("SigCgt:\t0000000000000000"), std::string::npos) << status;
  EXPECT_EQ(run("/bin/cp", {"cp", "/proc/self/environ", out.string()}), std::string("A=b\0", 4));
  const std::string descriptors =
      run("/usr/bin/find", {"find", "/proc/self/fd/", "-fprintf", out.string(), "%f=%l\n"});
  EXPECT_NE(descriptors.find("0=/dev/null\n1=/dev/null\n2=/dev/null\n"), std::string::npos) << descriptors;
  EXPECT_EQ(descriptors.find(std::to_string(leak) + "="), std::string::npos) << descriptors;
  signal(SIGUSR1, SIG_DFL);
  close(leak);
}

TEST_F(AutostartTest, AProgramThatCannotBeRunIsAnErrno) {
  char* arguments[] = {const_cast<char*>("x"), nullptr};
  char* environment[] = {nullptr};
  EXPECT_EQ(SpawnDetached((folder_ / "absent").c_str(), arguments, environment), ENOENT);
  std::ofstream(folder_ / "plain") << "x";
  EXPECT_EQ(SpawnDetached((folder_ / "plain").c_str(), arguments, environment), EACCES);
  EXPECT_EQ(child_signals, 0);
}

TEST_F(AutostartTest, TheProgramBesideTheLibraryIsStartedWithSocketAndFolder) {
  const fs::path out = folder_ / "out";
  Script(folder_ / "bin" / "gpuprobe", "{ echo \"$@\"; env; echo end; } > " + out.string());
  const char* environment[] = {"PATH=/bin:/usr/bin",
                               "LD_PRELOAD=/x/libgpuprobe.so",
                               "CUDA_INJECTION64_PATH=/x",
                               "NVTX_INJECTION64_PATH=/x",
                               "HOME=/h",
                               nullptr};
  Autostart autostart;
  bool silent = true;
  autostart.FindDirectory((folder_ / "run").c_str(), "/usr/bin/train");
  ASSERT_TRUE(autostart.Prepare(library_.c_str(), Places(), environment, &silent)) << autostart.problem();
  EXPECT_FALSE(silent);
  EXPECT_EQ(autostart.TryStart(), Autostart::Result::kStarted);
  const std::string text = WaitFor(out);
  EXPECT_NE(text.find("collect --autostarted --socket " + (folder_ / "s.sock").string() + " --out " +
                      (folder_ / "run").string()),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("HOME=/h"), std::string::npos);
  EXPECT_EQ(text.find("INJECTION64"), std::string::npos);
  EXPECT_EQ(text.find("LD_PRELOAD"), std::string::npos);
}

TEST_F(AutostartTest, AProcessThatAdoptsOrphansStartsNone) {
  Script(folder_ / "bin" / "gpuprobe", "echo end >> " + (folder_ / "count").string() + "\n");
  const char* environment[] = {nullptr};
  bool silent = true;
  Autostart later;
  later.FindDirectory((folder_ / "run").c_str(), "x");
  ASSERT_TRUE(later.Prepare(library_.c_str(), Places(), environment, &silent));
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
  Autostart autostart;
  autostart.FindDirectory((folder_ / "run").c_str(), "x");
  EXPECT_FALSE(autostart.Prepare(library_.c_str(), Places(), environment, &silent));
  EXPECT_FALSE(silent);
  EXPECT_STREQ(autostart.problem(), "this process adopts orphans, so the collector would be its child");
  EXPECT_EQ(later.TryStart(), Autostart::Result::kFailed);
  EXPECT_STREQ(later.problem(), autostart.problem());
  EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
  EXPECT_FALSE(fs::exists(folder_ / "count"));
}

TEST_F(AutostartTest, OnlyOneOfManyStartsIt) {
  Script(folder_ / "bin" / "gpuprobe", "sleep 0.1; echo end >> " + (folder_ / "count").string() + "\n");
  const char* environment[] = {nullptr};
  Autostart first;
  Autostart second;
  bool silent = false;
  first.FindDirectory((folder_ / "run").c_str(), "x");
  ASSERT_TRUE(first.Prepare(library_.c_str(), Places(), environment, &silent));
  second.FindDirectory((folder_ / "run").c_str(), "x");
  ASSERT_TRUE(second.Prepare(library_.c_str(), Places(), environment, &silent));
  EXPECT_EQ(first.TryStart(), Autostart::Result::kStarted);
  EXPECT_EQ(second.TryStart(), Autostart::Result::kByAnother);
  first.ReleaseLock();
  EXPECT_EQ(second.TryStart(), Autostart::Result::kStarted) << "who started first may have failed";
  EXPECT_EQ(Ends(WaitFor(folder_ / "count", 2)), 2u);
}

TEST_F(AutostartTest, ByDefaultTheRunIsNamedAfterTheTimeAndTheProgram) {
  Script(folder_ / "bin" / "gpuprobe", "true\n");
  const fs::path current = fs::current_path();
  fs::current_path(folder_);
  const char* environment[] = {nullptr};
  Autostart autostart;
  bool silent = false;
  autostart.FindDirectory("", "/usr/bin/train");
  EXPECT_TRUE(autostart.Prepare(library_.c_str(), Places(), environment, &silent));
  fs::current_path(current);
  const std::string directory(autostart.directory());
  EXPECT_EQ(directory[0], '/');
  EXPECT_STREQ(autostart.Shown("/elsewhere/run"), "/elsewhere/run");
  const std::string shown = autostart.Shown(directory.c_str());
  EXPECT_EQ(shown.rfind("gpuprobe-runs/20", 0), 0u) << shown;
  EXPECT_EQ(shown.substr(shown.size() - 7), "Z-train") << shown;
}

TEST_F(AutostartTest, ASocketThatCannotExistIsPassedOverInSilence) {
  Script(folder_ / "bin" / "gpuprobe", "true\n");
  const char* environment[] = {nullptr};
  bool silent = false;
  Autostart missing_folder;
  EXPECT_FALSE(missing_folder.Prepare(library_.c_str(), FindSocketPlaces("/nonexistent/s.sock", nullptr, 0),
                                      environment, &silent));
  EXPECT_TRUE(silent);
  std::ofstream(folder_ / "s.sock") << "not a socket";
  silent = false;
  Autostart a_file;
  EXPECT_FALSE(a_file.Prepare(library_.c_str(), Places(), environment, &silent));
  EXPECT_TRUE(silent);
}

TEST_F(AutostartTest, WithoutTheProgramThereIsAReason) {
  const char* environment[] = {nullptr};
  bool silent = true;
  Autostart autostart;
  EXPECT_FALSE(autostart.Prepare(library_.c_str(), Places(), environment, &silent));
  EXPECT_FALSE(silent);
  EXPECT_STREQ(autostart.problem(), "the gpuprobe program is not next to the library");
}

}  // namespace
}  // namespace gpuprobe::injector
