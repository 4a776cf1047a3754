// Synthetic clients for the collector's tests: records with absolute times in, a Batch as the injector would
// send it out.
//
// Written against the schema's comments alone (deltas from the previous end, all-zero columns left out), so
// that it checks the reader rather than mirrors it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::testing {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kStart = 1'700'000'000 * kSecond;

v1::Hello MakeHello(int rank, int world_size = 4, uint32_t pid = 0);

class BatchBuilder {
 public:
  explicit BatchBuilder(uint64_t sequence = 1, uint64_t base_ns = kStart);

  BatchBuilder& String(uint32_t id, const std::string& value);
  BatchBuilder& Thread(uint32_t id, bool main, const std::string& name = "");
  BatchBuilder& Site(uint32_t id, uint32_t name, uint32_t device = 0, uint32_t stream = 7);
  BatchBuilder& Comm(uint32_t id, uint64_t hash, int rank, int ranks);
  BatchBuilder& Clock(uint64_t realtime_ns, uint64_t monotonic_ns);
  BatchBuilder& Loss(v1::LossReason reason, uint64_t records);

  BatchBuilder& Kernel(uint64_t start_ns, uint64_t end_ns, uint32_t site, uint64_t correlation = 0,
                       uint64_t graph_node = 0);
  BatchBuilder& Copy(uint64_t start_ns, uint64_t end_ns, uint64_t bytes, v1::CopyDirection direction,
                     uint64_t correlation = 0, v1::MemoryKind src = v1::MEMORY_KIND_PINNED,
                     v1::MemoryKind dst = v1::MEMORY_KIND_DEVICE);
  BatchBuilder& Memset(uint64_t start_ns, uint64_t end_ns, uint64_t bytes, uint64_t correlation = 0);
  BatchBuilder& Sync(uint64_t start_ns, uint64_t end_ns, v1::SyncKind what);
  BatchBuilder& Overhead(uint64_t start_ns, uint64_t end_ns, v1::OverheadKind what, uint64_t correlation = 0);
  BatchBuilder& DriverCall(uint64_t start_ns, uint64_t end_ns, uint32_t function, uint32_t thread = 1,
                           int32_t result = 0);
  BatchBuilder& Launch(uint32_t thread, uint64_t time_ns, uint64_t correlation, uint64_t range = 0,
                       uint64_t fallback = 0);
  // Whose kernel the last launch was. All launches of a batch say it, or none does.
  BatchBuilder& Owner(v1::KernelOwner owner);
  BatchBuilder& Range(uint64_t id, uint64_t parent, uint32_t name, uint32_t thread, uint64_t start_ns,
                      uint64_t end_ns);
  BatchBuilder& Alloc(uint64_t time_ns, uint64_t bytes, uint64_t address, uint64_t range = 0,
                      v1::MemoryKind memory = v1::MEMORY_KIND_DEVICE, bool failed = false);
  BatchBuilder& Free(uint64_t time_ns, uint64_t bytes, uint64_t address,
                     v1::MemoryKind memory = v1::MEMORY_KIND_DEVICE);
  BatchBuilder& Collective(uint32_t op, uint32_t comm, uint64_t seq, uint64_t count, uint32_t element_bytes,
                           uint64_t plan, uint64_t issue_ns = kStart);
  // As at level calls.
  BatchBuilder& TracedCall(uint32_t op, uint32_t comm, uint64_t seq, uint64_t bytes, uint64_t issue_ns);
  BatchBuilder& Transfer(uint32_t op, uint32_t comm, uint64_t seq, int peer, uint64_t plan,
                         uint64_t issue_ns);
  BatchBuilder& Plan(uint64_t plan, uint64_t correlation);
  // Instead of Plan, not in one batch with it: the columns differ.
  BatchBuilder& CapturedPlan(uint64_t plan, uint64_t graph_node, uint32_t graph = 0, uint32_t copy = 0,
                             uint64_t from_correlation = 0);
  BatchBuilder& CapturedLaunch(uint64_t correlation, uint64_t graph_node);
  // Launch of an executable graph; not in one batch with Launch.
  BatchBuilder& GraphLaunch(uint32_t thread, uint64_t time_ns, uint64_t correlation, uint32_t graph);

  const v1::Batch& batch() const { return batch_; }
  v1::Frame Frame() const;

 private:
  // Previous values of the delta columns.
  struct Previous {
    uint64_t end = 0;
    uint64_t correlation = 0;
    uint64_t other = 0;
    uint64_t id = 0;
    uint64_t parent = 0;
  };
  int64_t Delta(uint64_t& previous, uint64_t value);

  v1::Batch batch_;
  Previous kernels_, copies_, memsets_, syncs_, overheads_, driver_calls_, ranges_, allocations_,
      collectives_, traced_calls_, plans_, launches_;
  uint32_t launch_thread_ = 0;
  uint64_t launch_fallback_ = 0;
};

// `frames`, each with its length, as they go over the socket.
std::string Stream(const std::vector<v1::Frame>& frames);
v1::Frame HelloFrame(const v1::Hello& hello);
v1::Frame ByeFrame(uint64_t batches, v1::ByeReason reason = v1::BYE_REASON_EXIT);

// A rank of a small training job, as frames from Hello to Bye: `steps` of forward, backward (launched from a
// second thread), one all-reduce of 1 MiB over `world_size` ranks and an optimizer, with a copy and an
// allocation each.
std::vector<v1::Frame> TrainingRank(int rank, int world_size, int steps);

}  // namespace gpuprobe::testing
