#include "tests/collector/testing/subprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace gpuprobe::testing {
namespace {

std::string ReadAndRemove(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  unlink(path.c_str());
  return out.str();
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& command, const std::string& directory,
                       const std::map<std::string, std::string>& environment, const std::string& input) {
  static std::atomic<int> counter{0};
  const std::string base =
      "/tmp/gpuprobe-test-io-" + std::to_string(getpid()) + "-" + std::to_string(counter++);
  out_path_ = base + ".out";
  err_path_ = base + ".err";
  in_path_ = base + ".in";
  std::ofstream(in_path_, std::ios::binary) << input;
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  if (chdir(directory.c_str()) != 0) _exit(99);
  dup2(open(in_path_.c_str(), O_RDONLY), STDIN_FILENO);
  dup2(open(out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execv(argv[0], argv.data());
  _exit(98);
}

Subprocess::~Subprocess() {
  if (!waited_) {
    Signal(SIGKILL);
    Wait();
  }
}

Finished Subprocess::Wait() {
  waited_ = true;
  int status = 0;
  for (int i = 0; waitpid(pid_, &status, WNOHANG) == 0; ++i) {
    if (i == 3000) Signal(SIGKILL);
    usleep(10'000);
  }
  unlink(in_path_.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .out = ReadAndRemove(out_path_),
          .err = ReadAndRemove(err_path_)};
}

Finished RunProgram(const std::vector<std::string>& command, const std::string& directory,
                    const std::map<std::string, std::string>& environment, const std::string& input) {
  return Subprocess(command, directory, environment, input).Wait();
}

}  // namespace gpuprobe::testing
