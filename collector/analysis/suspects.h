// Chooses the ranks of a job that are worth series of their own: those for which the others wait most.
//
// Each series that comes and goes costs a monitoring system an index entry, so the choice is stable: a rank
// for which the others waited 1 % of the time or more stays for ten minutes, and a rank that is chosen only
// because there is room makes way for such a rank and for no other.
//
// Example: of 1,024 ranks the first 16 are shown until rank 700 becomes late. It replaces one of them within
// seconds, and stays for ten minutes after it has caught up. Pure, and used from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/job_numbers.h"

namespace gpuprobe::analysis {

class Suspects {
 public:
  static constexpr size_t kMost = 16;
  static constexpr uint64_t kStayNs = 600'000'000'000;
  // Costs of longer ago hardly count.
  static constexpr uint64_t kMemoryNs = 60'000'000'000;
  // Share of the time below which a rank costs nothing worth a change.
  static constexpr double kLeastCost = 0.01;

  // Places in `job.ranks`, ascending. `now_ns` on any clock that only goes forward.
  std::vector<size_t> Choose(const JobNumbers& job, uint64_t now_ns);

 private:
  using Key = std::pair<std::string, std::string>;  // rank, host
  struct Rank {
    uint64_t caused_wait_ns = 0;
    double cost = 0;            // share of the lately past time
    uint64_t costly_at_ns = 0;  // 0: it never was
    bool chosen = false;
    size_t place = 0;
    bool seen = false;
  };
  void Look(const JobNumbers& job, uint64_t now_ns);

  std::map<Key, Rank> ranks_;
  uint64_t looked_ns_ = 0;  // 0: never
};

}  // namespace gpuprobe::analysis
