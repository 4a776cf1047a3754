// The communicators of a job: who made them of what, how large they are, what ran on them, what became of
// them.
//
// Separate from collective_report.h, which is about the time of the calls. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

struct CommunicatorReport {
  struct Operation {
    uint64_t calls = 0;  // of all ranks that report
    uint64_t bytes = 0;  // the messages', as the API counts them
  };
  std::string comm;                          // 16 hex digits, "unknown" if nobody reported its hash
  std::string name;                          // as the program named it; empty: it did not, or not known
  std::optional<int> ranks;                  // absent: not known
  int ranks_heard = 0;                       // that record here
  std::vector<int> members;                  // ranks of the job among them, ascending, at most kMaxMembers
  std::map<std::string, int> ranks_of_host;  // of the ranks that report
  std::string ran_as;                 // "RING LL, 8 channels": most of its calls; empty: NCCL did not say
  std::string parent;                 // as `comm`; empty: none, or not known
  std::string made_by;                // "CommSplit": NCCL's function; empty: not seen
  std::map<std::string, int> states;  // "created destroyed aborted revoked": how many ranks left it so
  std::optional<uint64_t> made_ns;    // when the first rank had it
  std::map<std::string, Operation> operations;
  static constexpr size_t kMaxMembers = 64;
};

// In the order in which they were made.
std::vector<CommunicatorReport> CommunicatorsOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
