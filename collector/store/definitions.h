// What one process has defined so far (names, sites, communicators ...), so that a log can begin with it and
// be read alone.
//
// The injector refers only to recent texts and kernel sites, and defines older ones again before it uses
// them. So only the latest of both are kept, and the older texts that other definitions or open ranges refer
// to. The model keeps only what its totals need.
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
  // The injector holds at most half as many texts and half as many sites; batches in flight may refer to
  // others.
  static constexpr size_t kMaxKept = size_t{2} * 65536;

  void Learn(const v1::Batch& batch);
  // Serialized Frames that hold nothing but `restated` batches, each well below the wire's limit.
  std::vector<std::string> Frames() const;

 private:
  // Texts beyond kMaxKept before the old ones are forgotten: looking for them costs a pass over all.
  static constexpr size_t kSlack = 32768;

  // Forgets texts that are neither among the latest kMaxKept nor referred to.
  void ForgetStrings();

  std::map<uint32_t, std::string> strings_;
  size_t strings_limit_ = kMaxKept + kSlack;  // more than these call for ForgetStrings
  std::map<uint32_t, v1::ThreadDef> threads_;
  std::map<uint32_t, v1::KernelSite> sites_;
  std::map<uint32_t, v1::HostFrame> frames_;
  std::map<uint32_t, v1::Device> devices_;
  std::map<uint32_t, v1::Communicator> communicators_;
  std::map<uint32_t, v1::PlanSeries> series_;                              // of roll-ups
  std::map<std::pair<uint32_t, uint32_t>, v1::RangeCategory> categories_;  // by domain and category
  v1::Versions versions_;
  v1::NcclIdentity nccl_identity_;
  std::vector<uint32_t> open_ranges_;  // names of ranges
};

}  // namespace gpuprobe::store
