// What level calls shows: steps and collectives of each rank, who is late at them, and when the collector had
// ranks record in full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

struct TracedRank {
  std::optional<int> rank;
  uint32_t pid = 0;
  uint64_t calls = 0;
  uint64_t steps = 0;
  double step_ns = 0;
  double longest_step_ns = 0;
  uint64_t timed_calls = 0;
  double gpu_ns = 0;
  uint64_t compared_calls = 0;
  uint64_t last_calls = 0;
  double late_ns = 0;
  double late_share = 0;
  double early_ns = 0;

  static constexpr void Declare(auto& fields) {
    using T = TracedRank;
    fields("rank", &T::rank, "its rank; `null`: it has none");
    fields("pid", &T::pid, "its process");
    fields("calls", &T::calls, "collectives that it issued");
    fields("steps", &T::steps, "steps of `GPUPROBE_STEP_MARKER` that began and were followed by the next");
    fields("step_ns", &T::step_ns,
           "mean time from the begin of a step to that of the next, on the host; `null`: no steps are known")
        .NullIfZero();
    fields("longest_step_ns", &T::longest_step_ns, "the longest of these; `null`: no steps are known")
        .NullIfZero();
    fields("timed_calls", &T::timed_calls, "collectives whose time on the GPU NCCL reported");
    fields("gpu_ns", &T::gpu_ns, "their time on the GPU in all, waiting included; `null`: none was reported")
        .NullIfZero();
    fields("compared_calls", &T::compared_calls,
           "collectives that were compared across all ranks of their communicator, or of this host");
    fields("last_calls", &T::last_calls, "of these, those at which it arrived last");
    fields("late_ns", &T::late_ns, "by how much it came after the one before it, at those, in all");
    fields("late_share", &T::late_share, "that, of the time from its first to its last collective");
    fields("early_ns", &T::early_ns,
           "by how much it came before the last, at the others, in all: by GPU times, what it waited");
  }
};

struct RaisedDetail {
  uint64_t decided_ns = 0;
  std::string reason;
  std::optional<int> rank;
  std::vector<int> ranks;
  std::string outcome;
  bool failed = false;

  static constexpr void Declare(auto& fields) {
    using R = RaisedDetail;
    fields("decided_ns", &R::decided_ns, "when it was decided");
    fields("reason", &R::reason, "why");
    fields("rank", &R::rank, "the rank that was late; `null`: steps became longer");
    fields("ranks", &R::ranks, "ranks that were to record in full");
    fields("outcome", &R::outcome, "what was captured; the findings say what it shows");
    fields("failed", &R::failed, "nothing, or less than was asked for, was captured");
  }
};

struct CallTraceReport {
  std::string compared_by;
  std::vector<TracedRank> ranks;
  std::optional<int> late_rank;
  std::string statement;
  std::vector<RaisedDetail> raises;

  static constexpr void Declare(auto& fields) {
    using C = CallTraceReport;
    fields("compared_by", &C::compared_by,
           "`gpu`: how long each collective was on each rank's GPU, as NCCL reports it; `host`: when each "
           "rank's process issued it, of each host's ranks among themselves, which does not show a slow GPU "
           "that its process runs ahead of; `null`: nothing could be compared")
        .NullIfZero();
    fields("ranks", &C::ranks, "by rank");
    fields("late_rank", &C::late_rank,
           "the rank that is late at collectives, over the whole run, as [level calls](calls.md) judges it; "
           "`null`: none");
    fields("statement", &C::statement, "who is late, in a sentence");
    fields("raises", &C::raises, "when the collector had ranks record steps in full, in time");
  }
};

}  // namespace gpuprobe::analysis
