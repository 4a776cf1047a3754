// Bounds of what a client or a log can make its readers keep: ids of definitions, plans, launches. They hold
// for every reader.
//
// Ids are dense by construction; a gap can only come from lost batches. A larger jump is not from our
// injector, and following it would let a peer make us allocate at will.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::model {

// Of a string, thread or kernel site; later ones are left out.
inline constexpr size_t kMaxId = size_t{1} << 22;
// Of a frame of the host; later ones are left out.
inline constexpr size_t kMaxFrames = size_t{1} << 18;
// Plans of NCCL calls, and launches that belong to one: the latest are kept.
inline constexpr size_t kMaxPlans = size_t{1} << 18;
// Plans that stay, and nodes of CUDA graphs that carry one: a program with a thousand graphs of a thousand
// layers.
inline constexpr size_t kMaxCaptured = size_t{1} << 20;

// Makes room for an id, or returns an error if it is out of range. `gaps`: any number of ids may be missing
// before it.
template <typename T>
absl::Status MakeRoom(std::vector<T>& dense, uint32_t id, const char* what, bool gaps = false) {
  constexpr size_t kMaxIdJump = 65536;
  if (id < dense.size()) return absl::OkStatus();
  if (id >= kMaxId || (!gaps && id > dense.size() + kMaxIdJump)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " id ", id, " is out of range"));
  }
  dense.resize(std::max<size_t>(size_t{id} + 1, std::min(dense.size() * 2, kMaxId)));
  return absl::OkStatus();
}
// Whether a program has used up all ids, and this is one of those that follow.
template <typename T>
bool IsBeyond(const std::vector<T>& dense, uint32_t id) {
  return dense.size() == kMaxId && id >= kMaxId;
}

}  // namespace gpuprobe::model
