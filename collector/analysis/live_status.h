// How a job is doing right now, for people to watch while it runs.
//
// Separate from the report, which covers the whole run and is settled: this covers the steps since the last
// look, and the waiting of the last few seconds, and is cheap enough for once a second. It remembers what it
// saw in these seconds. Pure.
//
// Ranks send batches of half a second, and not at the same moment: what is known of one rank now may be
// known of another at the next look. So waiting is not divided by the time between looks, but by the time
// over which calls were compared, which is known of all their ranks. And a duration ends when the rank was
// last heard, not now: the age of the news is no waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// Means per step, over the steps since the last look (the last kLeastSteps, if fewer) whose device records
// have come.
struct LiveStep {
  double total_ns = 0;
  double compute_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
};

struct LiveRank {
  std::optional<int> rank;
  std::string label;  // "5", or "pid 4711"
  std::string host;
  int pid = 0;
  uint64_t steps = 0;  // since the start
  std::optional<LiveStep> step;
  double late_ns = 0;    // that the mean of the others waited for it, a step
  double waited_ns = 0;  // that it waited for others, a step
  uint64_t memory_bytes = 0;
  std::string blocked_in;   // the call that its main thread waited in when it was last heard; empty: none
  uint64_t blocked_ns = 0;  // since when, then
  std::string
      python;  // where its main thread stays in Python, "Loader.fetch (train.py:14)"; empty: it goes on
  // Where the newest sample found its host, if that was in the silence that still goes on: "read of
  // /data/shard-7, called from load (train.py:88)". Empty: it launches, or was not sampled.
  std::string host_in;
  uint64_t host_in_ago_ns = 0;
  uint64_t silent_ns = 0;  // from its last launch to when it was last heard, with host_in
  std::string range;       // the main thread's open NVTX ranges, "step/forward"
  std::string last_call;   // the collective issued last, "AllReduce seq 482"; empty: none was
  uint64_t last_call_ago_ns = 0;
  std::string trouble;  // "stopped (SIGSTOP) since 18:02:11 UTC"; empty: none is known
};

struct LiveStatus {
  std::vector<std::string> hangs;  // a sentence each, of those that there are now
  // How long no process has begun or ended anything on a device; 0: they do.
  uint64_t idle_ns = 0;
  std::vector<LiveRank> ranks;  // by rank; processes without one last
  int world_size = 0;           // 0: not known
  std::vector<std::string> hosts;
  std::vector<std::string> devices;  // names, one a device
  std::string cuda;                  // "13.0"; empty: not known
  std::string nccl;
  uint64_t steps = 0;  // that every rank has seen
  std::optional<LiveStep> step;
  double wait_share = 0;          // of the ranks' time that they waited for later ones
  std::optional<size_t> slowest;  // into ranks: who makes the others wait most, if it matters
  uint64_t memory_bytes = 0;      // device memory of the rank that holds most
  uint64_t records = 0;
  uint64_t lost = 0;
};

class LiveWatch {
 public:
  static constexpr size_t kLeastSteps = 3;
  // Share of a step below which nobody is called late.
  static constexpr double kLateShare = 0.01;

  // With less, steps may simply be long.
  static constexpr uint64_t kIdleNs = 5'000'000'000;
  // Waiting is averaged over so much of the calls' time.
  static constexpr uint64_t kWindowNs = 4'000'000'000;

  // `now_ns` on the processes' clock.
  LiveStatus Look(const model::JobModel& job, uint64_t now_ns);

 private:
  // How far a rank's calls had been compared, and its waiting in them.
  struct Mark {
    uint64_t compared_ns = 0;
    uint64_t caused_ns = 0;
    uint64_t waited_ns = 0;
  };
  struct Before {
    uint64_t steps = 0;
    std::deque<Mark> marks;  // those of the window, and one before it
  };
  // Shares of the time over which its calls were compared: that others waited for it, and it for others.
  static std::pair<double, double> WaitingOf(const Mark& now, std::deque<Mark>& marks);
  LiveRank LookAt(const model::JobModel& job, const model::Member& member);

  std::vector<Before> before_;  // by member
};

}  // namespace gpuprobe::analysis
