#include "collector/model/ranges/range_paths.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

constexpr int kMaxDepth = 64;  // of a path; a cycle, which only a broken peer could make, ends there

}  // namespace

void RangePaths::Watch(uint64_t range) {
  if (range != 0) ranges_.try_emplace(range);
}

void RangePaths::Close(const RangeRecord& record) {
  const auto found = ranges_.find(record.id);
  if (found == ranges_.end() || found->second.closed) return;
  found->second.closed = true;
  found->second.name = record.name;
  found->second.parent = record.parent;
  Watch(record.parent);
}

std::vector<uint32_t> RangePaths::Path(uint64_t range) const {
  std::vector<uint32_t> names;
  for (int depth = 0; range != 0 && depth < kMaxDepth; ++depth) {
    const auto found = ranges_.find(range);
    if (found == ranges_.end()) break;
    names.push_back(found->second.name);
    range = found->second.parent;
  }
  std::reverse(names.begin(), names.end());
  return names;
}

void RangePaths::Forget(const std::function<void(const std::function<void(uint64_t)>&)>& for_each_needed) {
  for_each_needed([this](uint64_t range) {
    for (int depth = 0; range != 0 && depth < kMaxDepth; ++depth) {
      const auto found = ranges_.find(range);
      if (found == ranges_.end() || found->second.needed) return;
      found->second.needed = true;
      range = found->second.parent;
    }
  });
  absl::erase_if(ranges_, [](const auto& entry) { return !entry.second.needed; });
  for (auto& [id, range] : ranges_) range.needed = false;
  limit_ = std::max(kMaxRanges, 2 * ranges_.size());
}

}  // namespace gpuprobe::model
