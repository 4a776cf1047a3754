// What one process has defined so far (names, sites, communicators ...), so that a log can begin with it and
// be read alone.
//
// Separate from the model, which keeps only what its totals need.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {

class Definitions {
 public:
  void Learn(const v1::Batch& batch);
  // Serialized Frames that hold nothing but `restated` batches, each well below the wire's limit.
  std::vector<std::string> Frames() const;

 private:
  std::map<uint32_t, v1::StringDef> strings_;
  std::map<uint32_t, v1::ThreadDef> threads_;
  std::map<uint32_t, v1::KernelSite> sites_;
  std::map<uint32_t, v1::Device> devices_;
  std::map<uint32_t, v1::Communicator> communicators_;
  std::map<std::pair<uint32_t, uint32_t>, v1::RangeCategory> categories_;  // by domain and category
  v1::Versions versions_;
  v1::NcclIdentity nccl_identity_;
};

}  // namespace gpuprobe::store
