// Under which conditions the job ran: hosts, devices, versions, ranks, and what was recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

struct DeviceCondition {
  std::string host;
  uint32_t ordinal = 0;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  double memory_gbytes_per_s = 0;  // as the driver states it; 0: not known
};

// Where only some steps of the program were recorded.
struct StepsRecorded {
  std::string marker;  // GPUPROBE_STEP_MARKER
  uint64_t start = 0;
  std::optional<uint64_t> stop;
  uint64_t every = 1;
  uint64_t begun = 0;     // steps of the rank that took most, recorded or not
  uint64_t recorded = 0;  // of these steps
};

// Several processes computed on it at the same time.
struct SharedDevice {
  std::string host;
  int ordinal = 0;                     // as the first of them counts
  std::vector<int> ranks;              // ascending; without those of processes that have none
  std::vector<std::string> processes;  // "0", "0 (pid 4711)", "pid 4712": as in the table of ranks
};

// Several processes said that they were this rank, at the same time.
struct DuplicateRank {
  int rank = 0;
  std::vector<uint32_t> pids;
};

struct Conditions {
  std::string job;
  std::vector<std::string> hosts;
  std::vector<DeviceCondition> devices;
  std::vector<std::string> differing;  // what is not the same on all ranks, a clause each
  std::vector<SharedDevice> shared_devices;
  std::vector<DuplicateRank> duplicate_ranks;
  std::string cuda_driver;  // "13.0"; empty: not known
  std::string cuda_runtime;
  std::string cupti;
  std::string nccl;
  std::string probe_version;
  std::string collector_version;
  std::vector<std::string> command_line;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  int world_size = 0;   // 0: not known
  int ranks_heard = 0;  // distinct ranks (processes without rank count each)
  std::optional<int> ranks_expected;
  std::optional<StepsRecorded> steps_recorded;  // absent: everything was
  std::string step_marker;                      // --step-marker; empty: none
};

}  // namespace gpuprobe::analysis
