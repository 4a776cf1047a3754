#include "collector/model/steps/open_operations.h"

#include <algorithm>

namespace gpuprobe::model {

bool OpenOperations::ForgetBefore(uint64_t position) {
  const auto count = static_cast<ptrdiff_t>(position - base_);
  if (count <= 0) return false;
  for (ptrdiff_t i = 0; i < count; ++i) {
    forgotten_until_ns_ = std::max(forgotten_until_ns_, open_[static_cast<size_t>(i)].end_ns);
  }
  last_launch_ns_ = open_[static_cast<size_t>(count) - 1].launch_ns;
  open_.erase(open_.begin(), open_.begin() + count);
  base_ = position;
  // Long first steps, or the search for the first one, must not set the size for good.
  constexpr size_t kKeep = 512;
  if (open_.capacity() > kKeep && open_.capacity() > 4 * open_.size() &&
      open_.capacity() > 4 * static_cast<size_t>(count)) {
    open_.shrink_to_fit();
  }
  return true;
}

}  // namespace gpuprobe::model
