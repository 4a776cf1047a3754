#include "collector/model/operation_window.h"

namespace gpuprobe::model {
namespace {

// Correlation ids are 32 bits wide on the device's side: a jump back by more than half of that is the counter
// that started over.
constexpr uint64_t kWrap = uint64_t{1} << 31;
// Scratch space that is worth keeping between batches.
constexpr size_t kKeep = 512;

template <typename T>
void ShrinkIfLarge(std::vector<T>& vector) {
  if (vector.capacity() > kKeep && vector.capacity() > 4 * vector.size()) vector.shrink_to_fit();
}

}  // namespace

void OperationWindow::SortLaunches() {
  sorted_ = std::min(sorted_, launches_.size());
  if (sorted_ == launches_.size()) return;
  const auto by_correlation = [](const Launch& a, const Launch& b) { return a.correlation < b.correlation; };
  const auto middle = launches_.begin() + static_cast<ptrdiff_t>(sorted_);
  if (!std::is_sorted(middle, launches_.end(), by_correlation)) {
    std::sort(middle, launches_.end(), by_correlation);
  }
  const uint64_t highest = launches_.back().correlation;
  if (sorted_ > 0 && by_correlation(*middle, launches_[sorted_ - 1])) {
    std::inplace_merge(launches_.begin(), middle, launches_.end(), by_correlation);
  }
  if (highest + kWrap < told_) {
    told_ = told_before_ = released_ = 0;
    launches_.erase(launches_.begin(),
                    std::upper_bound(launches_.begin(), launches_.end(), Launch{highest, 0}, by_correlation));
  }
  told_ = std::max(told_, highest);
  sorted_ = launches_.size();
}

uint64_t OperationWindow::BoundOf(uint64_t bound, uint32_t batch) const {
  if (held_.size() > kMaxHeld) return UINT64_MAX;
  for (const Operation& operation : held_) {
    if (operation.correlation >= bound && operation.batch + kPatience <= batch)
      bound = operation.correlation + 1;
  }
  return bound;
}

void OperationWindow::TakeBefore(uint64_t bound) {
  keys_.clear();
  taken_.clear();
  if (bound == UINT64_MAX) {
    taken_.swap(held_);
  } else {
    const auto first = std::stable_partition(held_.begin(), held_.end(), [bound](const Operation& operation) {
      return operation.correlation >= bound;
    });
    taken_.assign(first, held_.end());
    held_.erase(first, held_.end());
  }
  keys_.reserve(taken_.size());
  for (size_t i = 0; i < taken_.size(); ++i) {
    keys_.push_back({taken_[i].correlation, taken_[i].graph_node, taken_[i].start_ns, i});
  }
  if (!std::is_sorted(keys_.begin(), keys_.end())) std::sort(keys_.begin(), keys_.end());
}

void OperationWindow::Shrink() {
  taken_.clear();
  keys_.clear();
  ShrinkIfLarge(taken_);
  ShrinkIfLarge(keys_);
  ShrinkIfLarge(held_);
  ShrinkIfLarge(launches_);
}

}  // namespace gpuprobe::model
