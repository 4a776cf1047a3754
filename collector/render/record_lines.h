// Captured records as JSON lines, in the field names of the truth log that the simulated node writes.
//
// Separate from the report because nothing is summed here: every record of a log once, streaming. A
// collective's GPU times come from the kernels of its plan, which may be recorded later than the call: a log
// is read twice, Learn first, then Write. Memory grows with the number of plans, not of records.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::render {

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

  void LearnDefinitions(const v1::Batch& batch);
  void LearnKernel(uint64_t correlation, uint64_t start_ns, uint64_t end_ns, uint32_t site);
  void WriteDeviceRecords(const v1::Batch& batch, const Emit& emit);
  void WriteHostRecords(const v1::Batch& batch, const Emit& emit);
  void WriteCollectives(const v1::Batch& batch, const Emit& emit);
  std::string Begin(const char* kind) const;
  const std::string& Quoted(uint32_t string) const;

  v1::Identity identity_;
  std::vector<std::string> strings_;  // quoted
  absl::flat_hash_map<uint32_t, v1::KernelSite> sites_;
  absl::flat_hash_map<uint32_t, uint32_t> thread_ids_;
  absl::flat_hash_map<uint32_t, v1::Communicator> communicators_;
  absl::flat_hash_map<uint64_t, uint64_t> plan_of_;  // by correlation
  absl::flat_hash_map<uint64_t, PlanWork> plans_;
  // Kernels of collectives that came before their plan was announced, by correlation.
  absl::flat_hash_map<uint64_t, PlanWork> early_;
};

}  // namespace gpuprobe::render
