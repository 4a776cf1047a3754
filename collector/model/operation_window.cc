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

// Room for a batch's operations that no window of this thread uses: a thousand ranks take turns with it, and
// between their batches keep only what waits.
std::vector<Operation>& SpareRoom() {
  static thread_local std::vector<Operation> spare;
  return spare;
}

}  // namespace

void OperationWindow::Grow() {
  std::vector<Operation>& spare = SpareRoom();
  if (spare.capacity() <= held_.capacity()) return;  // it grows as vectors do
  spare.assign(held_.begin(), held_.end());
  held_.swap(spare);
}

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

std::span<const uint32_t> OperationWindow::OrderBefore(uint64_t bound) const {
  // Scratch space of all windows: a thousand ranks must not keep one each.
  static thread_local std::vector<uint32_t> order;
  order.clear();
  uint64_t lowest = UINT64_MAX;
  uint64_t highest = 0;
  bool sorted = true;
  for (size_t i = 0; i < held_.size(); ++i) {
    const uint64_t correlation = held_[i].correlation;
    if (correlation >= bound && bound != UINT64_MAX) continue;
    sorted = sorted && correlation > highest;
    lowest = std::min(lowest, correlation);
    highest = std::max(highest, correlation);
    order.push_back(static_cast<uint32_t>(i));
  }
  if (sorted || OrderByPlace(lowest, highest, order)) return order;
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    const Operation& x = held_[a];
    const Operation& y = held_[b];
    if (x.correlation != y.correlation) return x.correlation < y.correlation;
    if (x.graph_node != y.graph_node) return x.graph_node < y.graph_node;
    return x.start_ns < y.start_ns;
  });
  return order;
}

bool OperationWindow::OrderByPlace(uint64_t lowest, uint64_t highest, std::vector<uint32_t>& order) const {
  // Correlation ids are nearly dense: a table of them is faster than sorting. 0: nothing there.
  constexpr uint64_t kSparsest = 16;
  if ((highest - lowest) / kSparsest > order.size()) return false;
  static thread_local std::vector<uint32_t> table;
  table.assign(static_cast<size_t>(highest - lowest) + 1, 0);
  for (const uint32_t place : order) {
    uint32_t& entry = table[static_cast<size_t>(held_[place].correlation - lowest)];
    if (entry != 0) return false;
    entry = place + 1;
  }
  order.clear();
  for (const uint32_t entry : table) {
    if (entry != 0) order.push_back(entry - 1);
  }
  return true;
}

void OperationWindow::ForgetBefore(uint64_t bound) {
  if (bound == UINT64_MAX) {
    held_.clear();
  } else {
    std::erase_if(held_, [bound](const Operation& o) { return o.correlation < bound; });
  }
  ShrinkIfLarge(launches_);
  if (held_.capacity() <= kKeep || held_.capacity() <= held_.size() + held_.size() / 4) return;
  std::vector<Operation> exact(held_.begin(), held_.end());
  held_.swap(exact);
  if (exact.capacity() > SpareRoom().capacity()) SpareRoom().swap(exact);
}

}  // namespace gpuprobe::model
