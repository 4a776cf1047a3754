// The record stream of one simulated rank: records in, the injector's frames out.
//
// Written against the schema (wire.proto), with libprotobuf, as a reader would expect a good client to speak:
// a definition comes with or before its first use, device records come after they are over and in no
// particular order, launches of a thread stand together. Times that come in are the simulation's true time;
// times that go out are those of the rank's own clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/simulate/host_code.h"
#include "collector/simulate/kernel_catalog.h"
#include "collector/simulate/program.h"
#include "collector/simulate/random.h"
#include "gpuprobe/v1/wire.pb.h"
#include "gpuprobe/v1/wire_records.h"

namespace gpuprobe::simulate {

// A rank's clock: REALTIME as its records show it, from true time.
struct RankClock {
  uint64_t epoch_ns = 0;           // REALTIME at true time 0 of a clock that is right
  int64_t offset_ns = 0;           // ahead of the truth
  double drift = 0;                // gains this share
  int64_t step_at_ns = INT64_MAX;  // when it is set
  int64_t step_ns = 0;

  uint64_t Realtime(int64_t true_ns) const {
    const auto drifted = static_cast<int64_t>(static_cast<double>(true_ns) * drift);
    const int64_t stepped = true_ns >= step_at_ns ? step_ns : 0;
    return epoch_ns + static_cast<uint64_t>(true_ns + offset_ns + drifted + stepped);
  }
  // The end of work that began at true_start_ns: CUPTI's records keep their durations even if the clock is
  // set back meanwhile.
  uint64_t EndOf(int64_t true_start_ns, int64_t true_end_ns) const {
    const bool within = step_ns < 0 && true_start_ns < step_at_ns && true_end_ns >= step_at_ns;
    return within ? Realtime(true_start_ns) + static_cast<uint64_t>(true_end_ns - true_start_ns)
                  : Realtime(true_end_ns);
  }
  // Does not step.
  uint64_t Monotonic(int64_t true_ns) const {
    return kBootNs +
           static_cast<uint64_t>(true_ns + static_cast<int64_t>(static_cast<double>(true_ns) * drift));
  }
  static constexpr uint64_t kBootNs =
      3'600'000'000'000;  // true time 0 is an hour after the start of the machine
};

struct CommunicatorMember {
  uint64_t hash = 0;
  int32_t rank = 0;
  int32_t ranks = 0;
};

struct RankDescription {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  uint32_t uid = 0;
  std::string job;
  std::string host;
  std::string device_uuid;
  std::string device_name;
  uint64_t device_bytes = 0;
  std::vector<std::string> command_line;
  RankClock clock;
  std::vector<CommunicatorMember> communicators;
  std::vector<std::string> range_names;
  uint32_t nccl_version = 0;
  double lost_share = 0;  // of device records, in blocks, as when no activity buffer was free
  uint64_t seed = 0;
};

class RankStream {
 public:
  explicit RankStream(RankDescription description);

  // Host threads: 1 is the main thread, 2 autograd's.
  static constexpr uint32_t kMainThread = 1;
  static constexpr uint32_t kAutogradThread = 2;

  void Kernel(simulate::Kernel kernel, uint8_t stream, uint16_t grid_percent, int64_t start_ns,
              int64_t end_ns, uint64_t correlation, uint64_t graph_node);
  void Copy(const Instruction& copy, int64_t start_ns, int64_t end_ns, uint64_t correlation);
  void Memset(const Instruction& memset, int64_t start_ns, int64_t end_ns, uint64_t correlation);
  // `graph`: as Launches.graph.
  void Launch(uint32_t thread, int64_t time_ns, uint64_t correlation, uint64_t range, uint64_t fallback,
              uint32_t graph = 0);
  void Sync(v1::SyncKind kind, uint8_t stream, int64_t start_ns, int64_t end_ns, uint64_t correlation);
  void Range(uint64_t id, uint64_t parent, uint32_t name, uint32_t thread, int64_t start_ns, int64_t end_ns);
  void Allocation(const Instruction& what, bool release, int64_t time_ns, uint64_t range);
  void Tensor(const Instruction& what, bool release, int64_t time_ns, uint64_t range);
  void AllocatorLevel(uint64_t allocated, uint64_t reserved, int64_t time_ns);
  void AllocatorRefusal(uint64_t asked, int64_t time_ns, uint64_t range);
  void Collective(const Instruction& call, uint32_t thread, uint64_t seq, uint64_t plan, int64_t issue_ns,
                  int64_t return_ns, uint64_t range);
  // A silence of the host, which is sampled as the probe does it.
  void HostSamples(HostCode code, uint32_t thread, int64_t start_ns, int64_t end_ns);
  // For a plan that was captured into a graph: correlation 0.
  void Plan(uint64_t plan, uint64_t correlation, uint64_t graph_node, uint32_t graph);

  // This rank's clock is set.
  void StepClock(int64_t at_ns, int64_t by_ns) {
    description_.clock.step_at_ns = at_ns;
    description_.clock.step_ns = by_ns;
  }

  // Records of the device that wait for a batch, and launches.
  size_t waiting() const;

  // Append a delimited Frame to `out`. A batch holds what is over at `now_ns`; `all`: everything, whenever it
  // ends.
  void Hello(std::string& out) const;
  void Batch(int64_t now_ns, bool all, v1::Frame& scratch, std::string& out);
  void Bye(int64_t now_ns, std::string& out) const;

  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }
  const RankDescription& description() const { return description_; }

 private:
  template <typename... Records>
  using VectorOfEach = std::tuple<std::vector<Records>...>;

  template <typename Record>
  std::vector<Record>& Rows() {
    return std::get<std::vector<Record>>(rows_);
  }
  uint32_t device() const { return static_cast<uint32_t>(description_.local_rank); }
  uint32_t String(const std::string& text);
  uint32_t Site(simulate::Kernel kernel, uint8_t stream, uint16_t grid_percent);
  bool Lose();
  void Describe(v1::Batch& batch);
  // The record as this rank's clock shows its times.
  template <typename Record>
  Record Shown(const Record& r) const;
  // What only the batch in which a record is sent knows: names are interned there.
  void Complete(auto& /*record*/) {}
  void Complete(model::RangeRecord& range);
  void Complete(model::CollectiveRecord& call);
  // The innermost frame of that code.
  uint32_t Frame(HostCode code, uint32_t line);
  template <typename Record>
  void Put(std::vector<Record>& rows, int64_t now_ns, bool all, v1::Batch& batch);

  RankDescription description_;
  Random random_;
  std::map<std::string, uint32_t> strings_;
  std::vector<std::pair<uint32_t, std::string>> new_strings_;
  std::vector<v1::KernelSite> new_sites_;
  std::vector<v1::HostFrame> new_frames_;
  std::map<std::pair<HostCode, uint32_t>, uint32_t> frames_;
  uint32_t last_frame_ = 0;
  absl::flat_hash_map<uint32_t, uint32_t> sites_;  // by kernel, stream and grid
  bool described_ = false;
  uint64_t sequence_ = 0;
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
  uint64_t device_records_ = 0;
  bool losing_ = false;
  uint64_t base_ns_ = 0;
  uint64_t peak_allocated_ = 0;
  uint64_t peak_reserved_ = 0;

  // Of every kind, with true times.
  model::AllRecords<VectorOfEach> rows_;
};

}  // namespace gpuprobe::simulate
