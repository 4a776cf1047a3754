// Collectives of one operation, communicator and size: calls, bytes, times, bandwidths and waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

// Calls that end after the warm-up; all of them where there are no steps.
struct SteadyCalls {
  bool has_steps = false;
  uint64_t compared = 0;      // plans of all ranks, in calls that more than one rank reported
  double plans_per_step = 0;  // without steps: in all
  double transfer_ns = 0;
  double transfer_std_ns = 0;
  double wait_ns = 0;

  static constexpr void Declare(auto& fields) {
    using S = SteadyCalls;
    fields.NullUnless([](const S& s) { return s.compared > 0; });
    fields("compared_plans", &S::compared, "plans of all ranks that could be compared");
    fields.Computed(
        "plans_per_step",
        [](const S& s) { return s.has_steps ? std::optional(s.plans_per_step) : std::nullopt; },
        [](S& s, const auto& plans) {
          s.has_steps = plans.has_value();
          s.plans_per_step = plans.value_or(0);
        },
        "of a rank, mean over the ranks that have steps; `null` without steps");
    fields("transfer_ns", &S::transfer_ns, "of a plan: the shortest time over the ranks");
    fields("transfer_std_ns", &S::transfer_std_ns, "its spread");
    fields("wait_ns", &S::wait_ns, "how much longer the ranks took, on average");
    fields.Unwritten(&S::has_steps, &S::plans_per_step);
  }
};

// What sends and receives are for (exchanges.h).
enum class TransferPattern : uint8_t {
  kNone,      // not sends and receives alone
  kPipeline,  // from stage to stage
  kExchange,  // each with several others at once: tokens to experts
  kRing,      // from the previous one, to the next
  kStar,      // from one to many, or from many to one
};

struct CollectiveReport {
  std::string op;
  std::string comm;
  std::string comm_name;
  TransferPattern transfers = TransferPattern::kNone;
  int comm_ranks = 0;  // 0: not known
  bool fused = false;
  uint32_t calls_per_plan = 1;
  bool mixed_sizes = false;  // several, in one entry
  uint64_t size_bytes = 0;
  uint64_t calls = 0;
  uint64_t failed_calls = 0;
  uint64_t untimed_calls = 0;
  uint64_t unlaunched_calls = 0;
  uint64_t bytes = 0;
  uint32_t element_bytes = 0;  // 0: several kinds
  struct RanAs {
    std::string algorithm;  // "RING"
    std::string protocol;   // "LL"
    uint32_t channels = 0;
    uint64_t calls = 0;

    static constexpr void Declare(auto& fields) {
      fields("algorithm", &RanAs::algorithm, "by NCCL's own names");
      fields("protocol", &RanAs::protocol, "the same");
      fields("channels", &RanAs::channels, "how many");
      fields("calls", &RanAs::calls, "calls that ran so");
    }
  };
  std::vector<RanAs> ran_as;
  model::Summary time_ns;
  std::optional<double> algbw;
  std::optional<double> busbw;
  std::optional<double> peak_share;
  std::optional<double> transfer_busbw;
  std::optional<uint64_t> wait_ns;
  std::optional<double> transfer_mean_ns;
  uint64_t compared_plans = 0;
  SteadyCalls steady;
  std::vector<uint32_t> members;  // processes that reported it, by their place in the job
  int heard_ranks = 0;
  int hosts = 0;  // of these

  static constexpr void Declare(auto& fields) {
    using C = CollectiveReport;
    fields("op", &C::op,
           "NCCL's name without the prefix; several, joined by `+`, if a fused plan holds several");
    fields("comm", &C::comm,
           "hash of the communicator as 16 hex digits, the `commId` that `NCCL_DEBUG=INFO` prints (before "
           "NCCL 2.23 one of our own; `unknown` if it never became known)");
    fields("comm_name", &C::comm_name, "its name").NullIfZero();
    fields("comm_ranks", &C::comm_ranks, "its size; `null`: not known").NullIfZero();
    fields("heard_ranks", &C::heard_ranks,
           "ranks of the communicator that are recorded here; below `comm_ranks`, transfers contain the "
           "waiting for the others; `null` in the entries of `ranks[]`")
        .NullIfZero();
    fields("fused", &C::fused, "whether calls of a group share a plan; they are timed together");
    fields("calls_per_plan", &C::calls_per_plan, "how many share it");
    fields.Computed(
        "size_bytes", [](const C& c) { return c.mixed_sizes ? std::nullopt : std::optional(c.size_bytes); },
        [](C& c, const auto& size) {
          c.mixed_sizes = !size.has_value();
          c.size_bytes = size.value_or(0);
        },
        "S of one plan as nccl-tests counts it (below); 0 for calls without elements; `null` in the entry "
        "that gathers what has too many sizes");
    fields("calls", &C::calls, "calls of all ranks");
    fields("failed_calls", &C::failed_calls, "calls that NCCL refused");
    fields("untimed_calls", &C::untimed_calls,
           "calls that launched nothing, or whose kernel was not captured");
    fields("unlaunched_calls", &C::unlaunched_calls,
           "of these, calls with nothing to launch: no elements, a communicator of one rank, or refused by "
           "NCCL; and one-sided calls (`PutSignal Signal WaitSignal`) of which no copy was seen, because "
           "NCCL's proxy or a memory operation of the stream does them");
    fields("bytes", &C::bytes, "sum of count x element size");
    fields("time_ns", &C::time_ns, "of plans");
    fields("algbw_gbytes_per_s", &C::algbw,
           "sum of S over the sum of times; the ranks' own kernel times, waiting included. Without each "
           "rank's first plan if there are others, as nccl-tests calls each size once before it measures; so "
           "are the other bandwidths and `transfer_mean_ns`");
    fields("busbw_gbytes_per_s", &C::busbw, "the same with S x f instead of S");
    fields("transfer_busbw_gbytes_per_s", &C::transfer_busbw,
           "the same with the shortest time among the ranks for each plan: what the link did");
    fields("peak_share", &C::peak_share,
           "`transfer_busbw_gbytes_per_s`, else `busbw_gbytes_per_s`, over "
           "`communication.link_peak_gbytes_per_s`");
    fields("wait_ns", &C::wait_ns,
           "sum, over compared plans, of a rank's own time minus the shortest among the ranks; `null` if no "
           "other rank was heard");
    fields("transfer_mean_ns", &C::transfer_mean_ns, "mean of that shortest time");
    fields("compared_plans", &C::compared_plans,
           "how many plans could be compared. The n-th send between two ranks is compared with the n-th "
           "receive there; plans of sends and receives that meet each other are one call");
    fields("steady", &C::steady,
           "of the plans that end after the warm-up (of all, without steps), per plan; `null` if none could "
           "be compared");
    fields.Computed(
        "algorithm",
        [](const C& c) {
          return c.ran_as.empty() ? std::nullopt : std::optional(c.ran_as.front().algorithm);
        },
        "how NCCL ran most of the calls, by its own names (`RING`); `null` if it did not tell its profiler "
        "plugin: before 2.24, sends and receives, captured calls, Broadcast from 2.30 on");
    fields.Computed(
        "protocol",
        [](const C& c) { return c.ran_as.empty() ? std::nullopt : std::optional(c.ran_as.front().protocol); },
        "the same (`LL128`)");
    fields.Computed(
        "channels",
        [](const C& c) { return c.ran_as.empty() ? std::nullopt : std::optional(c.ran_as.front().channels); },
        "the same");
    fields("ran_as", &C::ran_as, "every way in which it ran them, the most frequent first");
    fields.Unwritten(&C::transfers, &C::mixed_sizes, &C::size_bytes, &C::element_bytes, &C::members,
                     &C::hosts);
  }
};

}  // namespace gpuprobe::analysis
