// Ranks as forked processes, and the truth that they leave, for the tests of libnccl.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpusim::nccl {

struct RunOptions {
  std::map<std::string, std::string> environment = {};
  int seconds = 20;  // then what still runs is killed
};

struct RunResult {
  // Exit codes; minus the signal's number for a rank that a signal ended, -SIGKILL for one that ran out of
  // time.
  std::vector<int> codes;
  // Truth lines of kind "collective" by rank: those without a kernel as they were made ...
  std::vector<std::vector<nlohmann::json>> unlaunched;
  // ... and the others in the order of their starts.
  std::vector<std::vector<nlohmann::json>> collectives;
  std::vector<std::vector<nlohmann::json>> kernels;
  // Segments in /dev/shm that were not there before.
  std::vector<std::string> left_behind;
};

// Forks `ranks` processes that run `body(rank)` and exit with what it returns.
RunResult RunRanks(int ranks, const RunOptions& options, const std::function<int(int rank)>& body);

// Tells the line and ends the process with 1.
[[noreturn]] void FailCheck(const char* file, int line, const char* what);

}  // namespace gpusim::nccl

// In a rank's process, where GoogleTest's assertions do not reach.
#define RANK_CHECK(condition)                                    \
  do {                                                           \
    if (!(condition)) {                                          \
      ::gpusim::nccl::FailCheck(__FILE__, __LINE__, #condition); \
    }                                                            \
  } while (false)
