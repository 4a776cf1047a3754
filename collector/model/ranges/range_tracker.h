// GPU time and host time per annotated range: a tree of phases, built from range records and the GPU work
// launched inside them.
//
// Two streams meet here in any order: device records name the range that was open at their launch, often
// before that range has closed and so before its name and parent are known. An instance waits until
// everything launched in it has its record (Advance), until very many later ones have closed, or until
// Finish, and is then settled, children before parents: its statistics join the phase of its name under its
// parent, and its GPU intervals join the parent's. The GPU time of an instance is the length of the union of
// the intervals of the work launched in it, on any thread. A range without a parent on a thread other than
// the main one belongs inside the main thread's range around it (a backward pass runs on its own thread while
// the main thread waits in "backward"). While no such range has closed, it goes on waiting, and is settled
// before the first one that does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/statistics/interval_union.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// Phases of one name under one parent phase.
struct PhaseNode {
  // A phase has one sample an instance; a bounded tree of thousands of phases must stay small.
  static constexpr size_t kExactLimit = 8192;
  Distribution gpu_ns{kExactLimit};
  Distribution host_ns{kExactLimit};
  uint64_t unclosed = 0;
  uint64_t first_start_ns = UINT64_MAX;
  using Key = std::pair<uint32_t, uint32_t>;  // StringDefs of domain and name
  std::map<Key, std::unique_ptr<PhaseNode>> children;

  // The number of phases of `other` that were here already.
  size_t Merge(PhaseNode&& other);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, gpu_ns, host_ns, unclosed, first_start_ns, children);
  }
};

class RangeTracker {
 public:
  // Bounds: closed instances that wait for late device records; distinct phases; instances that never closed.
  static constexpr size_t kMaxWaiting = 32768;
  static constexpr size_t kMaxPhases = 4096;
  static constexpr size_t kMaxOpen = 65536;
  // An instance is settled once all launches up to this long after its end have their records. A graph that
  // was launched in it has its record with its first kernel; the others come within this time.
  static constexpr uint64_t kSettleAfterNs = 5'000'000'000;

  // A device record was launched with `range` open.
  void AddGpuWork(uint64_t range, uint64_t start_ns, uint64_t end_ns);
  // A range closed. `main_thread`: it was opened on the process's main thread.
  void Close(const RangeRecord& record, bool main_thread);
  // At the end of a batch: all launches before `launches_ns` have their records, or will get none. What this
  // batch reported about earlier instances has been read.
  void Advance(uint64_t launches_ns);
  // Settles everything. Instances that never closed have no name: their children become roots.
  void Finish();

  const PhaseNode& root() const { return root_; }
  uint64_t closed() const { return closed_; }
  // The name of an instance that has closed or is waiting, {0, 0} if it is not known (any more).
  PhaseNode::Key NameOf(uint64_t id) const;

 private:
  struct Instance {
    uint64_t parent = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    PhaseNode::Key name{0, 0};
    bool closed = false;
    bool unclosed = false;
    bool main_thread = false;
    IntervalUnion gpu{kIntervals};
    PhaseNode settled_children;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, parent, start_ns, end_ns, name, closed, unclosed, main_thread, gpu,
                      settled_children);
    }
  };
  static constexpr size_t kIntervals = 8192;

  // (end, ~start, ~id) of a closed one: the earliest end first; at equal ends the inner one, which started
  // later, first.
  using Waiting = std::tuple<uint64_t, uint64_t, uint64_t>;

  Instance& Get(uint64_t id);
  void SettleFirst();
  void Settle(uint64_t id);
  // Sets the first waiting instance aside until a range of the main thread around it closes. False: not
  // needed.
  bool SetAside();
  // Settles the instances set aside that lie within `around`.
  void SettleInside(const Instance& around);
  size_t waiting() const { return waiting_.size() + aside_.size(); }
  uint64_t EnclosingOnMainThread(const Instance& instance) const;
  PhaseNode& Child(PhaseNode& parent, PhaseNode::Key key);
  void DropOldestOpen();

  PhaseNode root_;
  size_t phases_ = 0;
  uint64_t closed_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Instance>> live_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
  // Closed ranges of the main thread by start, for EnclosingOnMainThread.
  std::multimap<uint64_t, uint64_t> main_by_start_;
  // Ready to be settled, but for the main thread's range around them: by (start, end, id).
  std::set<Waiting> aside_;
  uint64_t advanced_ns_ = 0;
  uint64_t last_id_ = 0;
  Instance* last_ = nullptr;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(waiting_, aside_, last_, last_id_), root_, phases_, closed_, live_,
                    main_by_start_, advanced_ns_);
    std::vector<Waiting> waiting;
    std::vector<Waiting> aside(aside_.begin(), aside_.end());
    if constexpr (!Archive::kReads) {
      for (auto copy = waiting_; !copy.empty(); copy.pop()) waiting.push_back(copy.top());
    }
    archive(waiting, aside);
    if constexpr (Archive::kReads) {
      waiting_ = decltype(waiting_)(std::greater<>(), std::move(waiting));
      aside_ = {aside.begin(), aside.end()};
      last_ = nullptr;
      last_id_ = 0;
    }
  }
};

}  // namespace gpuprobe::model
