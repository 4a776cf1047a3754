// What a process's numbers stand for: strings, threads and communicators, as its batches define them.
//
// Ids are dense by construction; a gap can only come from lost batches. A larger jump is not from our
// injector, and following it would let a peer make us allocate at will.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

inline constexpr size_t kMaxId = size_t{1} << 22;
// Makes room for an id, or says that it is out of range.
template <typename T>
absl::Status MakeRoom(std::vector<T>& dense, uint32_t id, const char* what) {
  constexpr size_t kMaxIdJump = 65536;
  if (id < dense.size()) return absl::OkStatus();
  if (id >= kMaxId || id > dense.size() + kMaxIdJump) {
    return absl::InvalidArgumentError(absl::StrCat(what, " id ", id, " is out of range"));
  }
  dense.resize(std::max<size_t>(size_t{id} + 1, std::min(dense.size() * 2, kMaxId)));
  return absl::OkStatus();
}

class ProcessNames {
 public:
  absl::Status On(const v1::StringDef& def);
  absl::Status On(const v1::ThreadDef& def);
  // Returns what is known of it by now.
  const v1::Communicator& On(const v1::Communicator& comm);

  // Also resolves operations that only kernels name (collective_kernels.h).
  const std::string& String(uint32_t id) const;
  bool Knows(uint32_t id) const { return id < strings_.size(); }
  // Whether it names a send, a receive or a one-sided operation.
  bool IsPointToPoint(uint32_t op) const { return op < point_to_point_.size() && point_to_point_[op]; }
  bool IsMainThread(uint32_t thread) const { return thread < main_thread_.size() && main_thread_[thread]; }
  // WorkRoles of what the thread launches.
  uint8_t ThreadRoles(uint32_t thread) const {
    return thread < thread_roles_.size() ? thread_roles_[thread] : uint8_t{0};
  }
  // nullptr if it was never described.
  const v1::Communicator* FindCommunicator(uint32_t id) const;
  // By Communicator.id. `time_ns`: when it was first reported.
  const absl::flat_hash_map<uint32_t, v1::Communicator>& communicators() const { return communicators_; }

 private:
  std::vector<std::string> strings_;
  std::vector<bool> point_to_point_;   // by StringDef of the operation
  std::vector<bool> main_thread_;      // by ThreadDef
  std::vector<uint8_t> thread_roles_;  // by ThreadDef
  absl::flat_hash_map<uint32_t, v1::Communicator> communicators_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, strings_, point_to_point_, main_thread_, thread_roles_, communicators_);
  }
};

}  // namespace gpuprobe::model
