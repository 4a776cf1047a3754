// Runs a program to its end, or in the background, with its output caught.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

namespace gpuprobe::testing {

struct Finished {
  int exit_code = -1;  // -signal if it died by one
  std::string out;
  std::string err;
};

class Subprocess {
 public:
  Subprocess(const std::vector<std::string>& command, const std::string& directory,
             const std::map<std::string, std::string>& environment = {}, const std::string& input = "");
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { kill(pid_, signal); }
  // Killed after 30 s.
  Finished Wait();

 private:
  pid_t pid_ = -1;
  std::string out_path_;
  std::string err_path_;
  std::string in_path_;
  bool waited_ = false;
};

Finished RunProgram(const std::vector<std::string>& command, const std::string& directory,
                    const std::map<std::string, std::string>& environment = {},
                    const std::string& input = "");

}  // namespace gpuprobe::testing
