// Collectives of all ranks that were issued and may still be running, and calls that the ranks of a
// communicator issued differently.
//
// JobModel compares collectives that are over; a hanging call never is, and is found here. A communicator
// runs its collectives one after another, so a call is over as soon as any rank has finished it or a later
// one; only calls issued since then are open. A rank whose record of a call was lost is assumed to have
// issued it when it issued a later one. Memory: the calls between the slowest rank's and the newest one,
// bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class IssuedCalls {
 public:
  // Calls of one communicator that are kept, and how many of these may be over without a report from every
  // rank; beyond, the oldest is forgotten.
  static constexpr size_t kMaxCalls = 65536;
  static constexpr size_t kMaxOver = 1024;
  static constexpr size_t kMaxMismatched = 64;
  static constexpr int32_t kMaxRanks = 1 << 16;
  static constexpr uint32_t kNoProcess = UINT32_MAX;
  static constexpr uint64_t kPlanNotKnown = UINT64_MAX - 1;  // at level calls

  // Properties on which all ranks must agree.
  struct Signature {
    uint32_t op = 0;        // JobModel::Name
    uint32_t datatype = 0;  // JobModel::Name, 0: not known
    uint64_t count = 0;     // of elements; with kPlanNotKnown: bytes
    int32_t root = -1;      // likewise: not known
    bool operator==(const Signature&) const = default;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, op, datatype, count, root);
    }
  };
  struct Issue {
    int32_t comm_rank = 0;
    uint32_t signature = 0;  // index into Call::signatures
    uint64_t issue_ns = 0;
    uint64_t element_bytes = 0;  // with kPlanNotKnown: of all elements
    uint64_t plan = 0;           // 0: it launched nothing; or kPlanNotKnown

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, comm_rank, signature, issue_ns, element_bytes, plan);
    }
  };
  struct Call {
    uint64_t seq = 0;
    std::vector<Signature> signatures;
    std::vector<Issue> issues;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, seq, signatures, issues);
      for (const Issue& issue : issues) archive.Require(issue.signature < signatures.size());
    }
  };
  struct RankState {
    uint32_t process = kNoProcess;  // index into JobModel::processes; none: it has not reported
    uint64_t next_seq = 0;          // above the last one that it issued

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, process, next_seq);
    }
  };
  struct Communicator {
    uint64_t finished = 0;   // calls below it are over
    std::deque<Call> calls;  // by seq; first those that are over and still compared
    std::vector<RankState> ranks;
    uint64_t heard = 0;  // ranks with a process

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, finished, calls, ranks, heard);
    }
  };
  struct Mismatched {
    uint64_t hash = 0;
    Call call;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, hash, call);
    }
  };

  // `comm_rank` of `process` is one of the `ranks` of the communicator `hash`; known before it issues
  // anything.
  void Join(uint64_t hash, int32_t ranks, int32_t comm_rank, uint32_t process);
  // The call if all of its ranks have issued it now, until something else is called; else nullptr.
  const Call* Issued(uint64_t hash, int32_t comm_rank, uint64_t seq, const Signature& signature,
                     const Issue& issue);
  // Some rank's kernel of the call has ended, or the call was captured and not launched.
  void Finished(uint64_t hash, uint64_t seq);

  const std::map<uint64_t, Communicator>& communicators() const { return communicators_; }
  // Calls with more than one signature, also those that are over.
  std::vector<Mismatched> Mismatches() const;

 private:
  void DropFront(uint64_t hash, Communicator& comm);
  void DropOver(uint64_t hash, Communicator& comm);

  std::map<uint64_t, Communicator> communicators_;  // by hash
  std::deque<Mismatched> mismatched_;               // of those that were dropped

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, communicators_, mismatched_);
  }
};

}  // namespace gpuprobe::model
