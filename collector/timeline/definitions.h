// What a process's records refer to by id: names, kernels with their launch geometry, threads, streams and
// communicators.
//
// Definitions come before their first use, and none is forgotten: memory grows with the number of distinct
// names. Views stay valid.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/timeline/events.h"
#include "collector/timeline/occupancy.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::timeline {

// A kernel in one launch geometry on one stream.
struct Site {
  std::string_view name;        // demangled
  std::string_view collective;  // operation, if it is a kernel of NCCL's; else empty
  std::string grid;             // "[128, 1, 1]"
  std::string block;
  v1::KernelSite geometry;
  std::optional<Occupancy> occupancy;
};

struct Thread {
  uint32_t tid = 0;
  std::string name;
};

class Definitions {
 public:
  explicit Definitions(const Process& process) : process_(process) {}

  void Learn(const v1::Batch& batch);

  // Empty for an unknown id.
  std::string_view String(uint32_t id) const;
  // nullptr for an unknown id.
  const Site* FindSite(uint32_t id) const;
  const Thread& ThreadOf(uint32_t id) const;
  const v1::Communicator* FindCommunicator(uint32_t id) const;
  // "GPU 0 stream 7", with the program's name for it.
  std::string StreamName(uint32_t device, uint32_t context, uint32_t stream) const;

 private:
  std::string_view Demangled(uint32_t name);

  const Process& process_;
  std::vector<std::string_view> strings_;
  std::deque<std::string> text_;  // of strings_ and demangled_
  absl::flat_hash_map<uint32_t, std::string_view> demangled_;
  std::map<uint32_t, Site> sites_;
  std::vector<const Site*> site_by_id_;
  std::map<uint32_t, Thread> threads_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> stream_names_;  // by context and stream: StringDef
  std::map<uint32_t, v1::Communicator> communicators_;
};

}  // namespace gpuprobe::timeline
