// The job's communicators: what they were made from, how large they are, what ran on them, what became of
// them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/words.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::analysis {

struct CommunicatorReport {
  struct Operation {
    uint64_t calls = 0;
    uint64_t bytes = 0;

    static constexpr void Declare(auto& fields) {
      fields("calls", &Operation::calls, "of all ranks that are heard");
      fields("bytes", &Operation::bytes, "of these, as the API counts a message");
    }
  };
  std::string comm;
  std::string name;
  std::optional<int> ranks;
  int ranks_heard = 0;
  std::vector<int> members;  // ascending
  int hosts = 0;
  std::optional<std::array<int, 2>> ranks_per_host;
  std::string ran_as;  // "RING LL, 8 channels"
  std::string parent;
  std::string made_by;  // "CommSplit"
  report::WordMap<v1::CommunicatorState, int> states;
  std::optional<uint64_t> made_ns;
  std::map<std::string, Operation> operations;
  static constexpr size_t kMaxMembers = 64;

  uint64_t Sum(uint64_t Operation::*part) const {
    uint64_t sum = 0;
    for (const auto& [op, operation] : operations) sum += operation.*part;
    return sum;
  }

  static constexpr void Declare(auto& fields) {
    using C = CommunicatorReport;
    fields("comm", &C::comm,
           "as in `collectives`, `unknown` if its hash is not known (each process then has an entry of its "
           "own)");
    fields("name", &C::name,
           "the name that the program gave NCCL (`commName`, at most 63 bytes), `null` without one")
        .NullIfZero();
    fields("ranks", &C::ranks, "how many ranks it has; `null`: not known");
    fields("ranks_heard", &C::ranks_heard, "how many of them record here");
    fields("members", &C::members, "their ranks of the job, ascending, 64 at most");
    fields("hosts", &C::hosts, "how many hosts these are on");
    fields("ranks_per_host", &C::ranks_per_host, "the fewest and the most of them on one");
    fields("ran_as", &C::ran_as, "algorithm, protocol and channels of most calls, if NCCL reports them")
        .NullIfZero();
    fields("parent", &C::parent, "the communicator it was created from; `null`: none, or not known")
        .NullIfZero();
    fields("made_by", &C::made_by,
           "by which NCCL function, without the prefix (`CommInitRank CommSplit` ...); `null` if not seen")
        .NullIfZero();
    fields("made_ns", &C::made_ns, "when the first rank had it");
    fields("states", &C::states,
           "how many ranks left it in which state: `created` (it was still there at the end), `destroyed`, "
           "`aborted`, `revoked`");
    fields.Computed(
        "calls", [](const C& c) { return c.Sum(&Operation::calls); }, "of all operations");
    fields.Computed(
        "bytes", [](const C& c) { return c.Sum(&Operation::bytes); }, "of all operations");
    fields("operations", &C::operations, "by operation");
  }
};

}  // namespace gpuprobe::analysis
