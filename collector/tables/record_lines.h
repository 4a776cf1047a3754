// Captured records as JSON lines, in the field names of the truth log that the simulated node writes.
//
// Separate from the report because nothing is summed here: every record of a log once, streaming. A
// collective's GPU times come from the kernels of its plan, which may be recorded later than the call: a log
// is read twice, Learn first, then Write. Memory grows with the number of plans and of ranges' extended
// payloads, not of records; of a log with captured collectives, also with the launches that follow the
// capture.
//
// A captured call has a line of its own with "captured": true and no times, and one with "replay" (from 1)
// for each launch of a graph that carries it; the issue time is then that of the graph's launch. What becomes
// of a communicator (created, revoked, aborted, destroyed) is a line each, with all that was ever learned of
// it. A kernel of NCCL's that no call explains is a collective with "source": "kernel_name", of communicator
// "unknown".
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "collector/model/calls/graph_node_plans.h"
#include "collector/model/records.h"
#include "collector/tables/record_line.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::tables {

// One process's log.
class RecordLines {
 public:
  using Emit = std::function<void(const std::string& line)>;  // without newline

  void LearnHello(const v1::Hello& hello) { identity_ = hello.identity(); }
  absl::Status Learn(const v1::Batch& batch);
  // Batches in the same order as they were learned.
  absl::Status Write(const v1::Batch& batch, const Emit& emit);

 private:
  struct PlanWork {
    uint64_t start_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    uint64_t correlation = 0;
    uint32_t device = 0;
    uint32_t stream = 0;
  };
  using Replays = std::map<std::pair<uint64_t, uint32_t>, PlanWork>;
  struct CollectiveLine;

  void LearnDefinitions(const v1::Batch& batch);
  void LearnPlan(const model::PlanRecord& record);
  void LearnKernel(const model::KernelRecord& kernel);
  void LearnCopy(const model::CopyRecord& copy);
  static void NoteWork(const PlanWork& part, PlanWork& work);
  void NoteWork(const model::KernelRecord& kernel, PlanWork& work) const;
  void KeepEarliestReplay();
  void ResolveReplays();
  template <typename Record, typename Fields>
  std::string LineFor(const Fields& fields, const char* kind) const;
  template <typename Record, typename Fields>
  std::string LineFor(const Fields& fields) const;
  // The names that the program gave to the device and the stream, if any.
  template <typename Fields>
  void FindNames(uint32_t device, uint32_t context, uint32_t stream, Fields& fields) const;
  // Records of one kind, of work on the device; whose fields are all that their lines have.
  template <typename Record>
  void WriteOnDevice(const v1::Batch& batch, const Emit& emit) const;
  template <typename Record>
  void WriteAsTheyAre(const v1::Batch& batch, const Emit& emit) const;
  void WriteDeviceRecords(const v1::Batch& batch, const Emit& emit);
  void WriteMemory(const v1::Batch& batch, const Emit& emit) const;
  void WriteRanges(const v1::Batch& batch, const Emit& emit);
  void WriteLaunches(const v1::Batch& batch, const Emit& emit);
  void WriteCommunicators(const v1::Batch& batch, const Emit& emit);
  void WriteCollectives(const v1::Batch& batch, const Emit& emit);
  void WriteReplays(const model::CollectiveRecord& call, const Replays& replays, const Emit& emit);
  bool Unexplained(const model::KernelRecord& kernel) const;
  std::string UnexplainedLine(const model::KernelRecord& kernel, const v1::KernelSite& site) const;
  CollectiveLine LineOfCall(const model::CollectiveRecord& call, const PlanWork* work);

  v1::Identity identity_;
  QuotedStrings strings_;
  absl::flat_hash_map<uint32_t, v1::KernelSite> sites_;
  std::vector<bool> collective_sites_;  // kernels of NCCL's, by KernelSite
  absl::flat_hash_map<uint32_t, uint32_t> thread_ids_;
  absl::flat_hash_map<uint32_t, std::string> thread_names_;                      // quoted
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> category_names_;  // by domain and category
  absl::flat_hash_map<uint32_t, uint32_t> device_names_;                         // by ordinal
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> stream_names_;    // by context and stream
  absl::flat_hash_map<uint64_t, std::string> fields_;  // members of an object, by range
  absl::flat_hash_map<uint32_t, v1::Communicator> communicators_;
  // Written so far: a communicator is reported again when more is known about it, and in a log without its
  // beginning.
  absl::flat_hash_set<std::pair<uint32_t, v1::CommunicatorState>> told_communicators_;
  absl::flat_hash_map<uint64_t, uint64_t> plan_of_;  // by correlation
  absl::flat_hash_map<uint64_t, PlanWork> plans_;
  // Kernels of collectives that came before their plan was announced, by correlation.
  absl::flat_hash_map<uint64_t, PlanWork> early_;
  // Copies, the latest, which may turn out to be a one-sided call's.
  static constexpr size_t kMaxEarlyCopies = 4096;
  absl::flat_hash_map<uint64_t, PlanWork> early_copies_;
  std::deque<uint64_t> early_copies_order_;  // their correlations
  // A program may update its graphs at each step, and is read as a whole before anything is written.
  model::GraphNodePlans node_plans_{SIZE_MAX, SIZE_MAX};
  // Captured plans: a piece of work for each graph launch, by its correlation, and each copy.
  absl::flat_hash_map<uint64_t, Replays> replays_;
  std::vector<model::KernelRecord> replayed_kernels_;  // of collectives, until all plans are known
  // Replayed copies, by node; the latest ones, until it is known whether their nodes carry anything.
  static constexpr size_t kMaxEarlyReplays = 65536;
  std::vector<std::pair<uint64_t, PlanWork>> replayed_copies_;
  std::deque<std::pair<uint64_t, PlanWork>> early_replays_;
  absl::flat_hash_map<uint64_t, uint64_t> launch_ns_;  // by correlation, once something was captured
};

}  // namespace gpuprobe::tables
