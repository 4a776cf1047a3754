// Captured records as JSON lines, in the field names of the truth log that the simulated node writes.
//
// Every record of a log once, streaming; nothing is summed. A collective's GPU times come from the kernels of
// its plan, which may be recorded later than the call: a log is read twice, Learn first, then Write. Memory
// grows with the number of plans and of ranges' extended payloads, not of records; of a log with captured
// collectives, also with the launches that follow the capture.
//
// A captured call has a line of its own with "captured": true and no times, and one with "replay" (from 1)
// for each launch of a graph that carries it; the issue time is then that of the graph's launch. Each state
// change of a communicator (created, revoked, aborted, destroyed) is a line, with everything known about it.
// A kernel of NCCL's that no call explains is a collective with "source": "kernel_name", of communicator
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
#include "collector/records/call_table.h"
#include "collector/records/definitions.h"
#include "collector/records/rows.h"
#include "collector/tables/placed_work.h"
#include "collector/tables/record_line.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::tables {

// One process's log.
class RecordLines {
 public:
  using Emit = std::function<void(const std::string& line)>;  // without newline

  // For lines as they were recorded.
  RecordLines() = default;
  // For tables: kernels have readable names, their class, and what recorded them as `symbol`, and work on the
  // device has its step and phase. `placed` outlives this.
  explicit RecordLines(const PlacedWork* placed) : for_tables_(true), placed_(placed) {}

  void LearnHello(const v1::Hello& hello);
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

  void LearnKernel(const model::KernelRecord& kernel);
  void LearnCopy(const model::CopyRecord& copy);
  static void NoteWork(const PlanWork& part, PlanWork& work);
  void AddEarly(uint64_t graph_node, const PlanWork& work);
  void KeepEarliest();
  void ResolveWork();
  template <typename Record, typename Fields>
  std::string LineFor(const Fields& fields, const char* kind) const;
  template <typename Record, typename Fields>
  std::string LineFor(const Fields& fields) const;
  // The names that the program gave to the device and the stream, if any.
  template <typename Fields>
  void FindNames(uint32_t device, uint32_t context, uint32_t stream, Fields& fields) const;
  // The line, with the columns that tables have besides.
  std::string InTable(std::string line, uint64_t start_ns, uint64_t end_ns) const;
  struct KernelNames {
    std::string name;  // all are quoted
    std::string symbol;
    std::string kernel_class;
  };
  const KernelNames& NamesOf(uint32_t name_id);
  // Records of one kind, of work on the device; whose fields are all that their lines have.
  template <typename Record>
  void WriteOnDevice(const v1::Batch& batch, const Emit& emit) const;
  template <typename Record>
  void WriteAsTheyAre(const v1::Batch& batch, const Emit& emit) const;
  void WriteDeviceRecords(const v1::Batch& batch, const Emit& emit);
  template <typename Record, typename Line>
  void WriteTraced(const v1::Batch& batch, const Emit& emit) const;
  void WriteDriverCalls(const v1::Batch& batch, const Emit& emit) const;
  void WriteMemory(const v1::Batch& batch, const Emit& emit) const;
  void WriteRanges(const v1::Batch& batch, const Emit& emit);
  void WriteLaunches(const v1::Batch& batch, const Emit& emit);
  void WriteHostSamples(const v1::Batch& batch, const Emit& emit) const;
  // The innermost frame from this one on that is the program's own; nullptr: there is none.
  const v1::HostFrame* OwnFrame(const v1::HostFrame* frame) const;
  void WriteCommunicators(const v1::Batch& batch, const Emit& emit);
  void WriteCollectives(const v1::Batch& batch, const Emit& emit);
  void WriteReplays(const model::CollectiveRecord& call, const Replays& replays, const Emit& emit);
  bool Unexplained(const model::KernelRecord& kernel, const model::Site& site) const;
  std::string UnexplainedLine(const model::KernelRecord& kernel, const model::Site& site) const;
  const v1::Communicator& CommunicatorOf(uint32_t id) const;
  CollectiveLine LineOfCall(const model::CollectiveRecord& call, const PlanWork* work);

  bool for_tables_ = false;
  const PlacedWork* placed_ = nullptr;
  const PlacedWork::Process* process_work_ = nullptr;
  absl::flat_hash_map<uint32_t, KernelNames> kernel_names_;
  v1::Identity identity_;
  model::Definitions definitions_{Quoted};
  absl::flat_hash_map<uint64_t, std::string> fields_;  // members of an object, by range
  // Written so far: a communicator is reported again when more is known about it, and in a log without its
  // beginning.
  absl::flat_hash_set<std::pair<uint32_t, v1::CommunicatorState>> told_communicators_;
  // A program may update its graphs at each step, and is read as a whole before anything is written.
  model::WorkPlans work_plans_{SIZE_MAX, model::GraphNodePlans(SIZE_MAX, SIZE_MAX)};
  absl::flat_hash_map<uint64_t, PlanWork> plans_;
  // Captured plans: a piece of work for each graph launch, by its correlation, and each copy.
  absl::flat_hash_map<uint64_t, Replays> replays_;
  // Work by its node in a graph, or 0, until all plans are known: of collectives, and the latest copies, and
  // kernels whose names are uncertain, until it is known whether they are a call's.
  std::vector<std::pair<uint64_t, PlanWork>> work_;
  static constexpr size_t kMaxEarly = 65536;
  std::deque<std::pair<uint64_t, PlanWork>> early_;
  absl::flat_hash_map<uint64_t, uint64_t> launch_ns_;  // by correlation, once something was captured
  absl::flat_hash_set<uint64_t> not_nccl_;  // correlation ids of other kernels, where names are uncertain
};

}  // namespace gpuprobe::tables
