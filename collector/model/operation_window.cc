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
    if (batch < operation.batch + kPatience) break;
    bound = std::max(bound, operation.correlation + 1);
  }
  return bound;
}

void OperationWindow::TakeBefore(uint64_t bound) {
  taken_.clear();
  if (bound == UINT64_MAX) {
    taken_.swap(held_);
  } else {
    size_t kept = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      if (held_[i].correlation < bound) {
        taken_.push_back(held_[i]);
      } else {
        if (kept != i) held_[kept] = held_[i];
        ++kept;
      }
    }
    held_.resize(kept);
  }
  OrderTaken();
}

void OperationWindow::OrderTaken() {
  order_.resize(taken_.size());
  if (taken_.empty()) return;
  uint64_t lowest = UINT64_MAX;
  uint64_t highest = 0;
  bool sorted = true;
  for (size_t i = 0; i < taken_.size(); ++i) {
    const uint64_t correlation = taken_[i].correlation;
    sorted = sorted && correlation > highest;
    lowest = std::min(lowest, correlation);
    highest = std::max(highest, correlation);
    order_[i] = static_cast<uint32_t>(i);
  }
  if (sorted) return;
  if (OrderByPlace(lowest, highest)) return;
  const auto before = [this](uint32_t a, uint32_t b) {
    const Operation& x = taken_[a];
    const Operation& y = taken_[b];
    if (x.correlation != y.correlation) return x.correlation < y.correlation;
    if (x.graph_node != y.graph_node) return x.graph_node < y.graph_node;
    return x.start_ns < y.start_ns;
  };
  std::sort(order_.begin(), order_.end(), before);
}

bool OperationWindow::OrderByPlace(uint64_t lowest, uint64_t highest) {
  // Correlation ids are nearly dense: a table of them is faster than sorting. 0: nothing there.
  constexpr uint64_t kSparsest = 16;
  if ((highest - lowest) / kSparsest > taken_.size()) return false;
  static thread_local std::vector<uint32_t> table;
  table.assign(static_cast<size_t>(highest - lowest) + 1, 0);
  for (size_t i = 0; i < taken_.size(); ++i) {
    uint32_t& place = table[static_cast<size_t>(taken_[i].correlation - lowest)];
    if (place != 0) return false;
    place = static_cast<uint32_t>(i) + 1;
  }
  size_t next = 0;
  for (const uint32_t place : table) {
    if (place != 0) order_[next++] = place - 1;
  }
  return true;
}

void OperationWindow::Shrink() {
  taken_.clear();
  order_.clear();
  ShrinkIfLarge(taken_);
  ShrinkIfLarge(order_);
  ShrinkIfLarge(held_);
  ShrinkIfLarge(launches_);
}

}  // namespace gpuprobe::model
