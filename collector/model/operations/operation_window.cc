#include "collector/model/operations/operation_window.h"

namespace gpuprobe::model {
namespace {

// Correlation ids are 32 bits wide on the device's side: a jump back by more than half of that is the counter
// that started over.
constexpr uint64_t kWrap = uint64_t{1} << 31;
// Launches whose room is worth keeping between batches.
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
    launches_.erase(launches_.begin(), std::upper_bound(launches_.begin(), launches_.end(),
                                                        Launch{highest, 0, 0, 0}, by_correlation));
  }
  told_ = std::max(told_, highest);
  sorted_ = launches_.size();
}

bool OperationWindow::WaitedEnough(const Launch& launch, uint32_t batch) const {
  return batch >= launch.batch + kPatience && (held_.size() > kMaxHeld || SawMuchLater(launch));
}

bool OperationWindow::SawMuchLater(const Launch& launch) const {
  if (latest_ns_ >= launch.launch_ns + kLaterNs) return true;
  const auto thread = latest_of_thread_.find(launch.thread);
  return thread != latest_of_thread_.end() && thread->second >= launch.launch_ns + kLaterOnThreadNs;
}

bool OperationWindow::SawLater(const Launch& launch) const {
  const auto thread = latest_of_thread_.find(launch.thread);
  if (thread != latest_of_thread_.end()) return thread->second >= launch.launch_ns;
  return latest_of_thread_.size() == kMaxThreads && latest_ns_ >= launch.launch_ns;
}

uint64_t OperationWindow::ToldBefore(uint32_t batch) const {
  uint64_t told = told_before_ + 1;
  held_.Any([&](const Operation& operation) {
    if (batch < operation.batch + kPatience) return true;
    if (!operation.launched) told = std::max(told, operation.correlation + 1);
    return false;
  });
  return told;
}

void OperationWindow::FindThread(uint32_t thread) {
  seen_thread_ = thread;
  seen_ns_ = nullptr;
  const auto found = latest_of_thread_.find(thread);
  if (found != latest_of_thread_.end()) {
    seen_ns_ = &found->second;
  } else if (latest_of_thread_.size() < kMaxThreads) {
    seen_ns_ = &latest_of_thread_[thread];
  }
}

std::span<const uint32_t> OperationWindow::OrderBefore(uint64_t bound) {
  // Scratch space of all windows: a thousand ranks must not keep one each.
  static thread_local std::vector<uint32_t> order;
  order.clear();
  uint64_t lowest = UINT64_MAX;
  uint64_t highest = 0;
  bool sorted = true;
  held_.ForEachPlace([&](uint32_t place, const Operation& operation) {
    const uint64_t correlation = operation.correlation;
    if (correlation >= bound && bound != UINT64_MAX) return;
    sorted = sorted && correlation > highest;
    lowest = std::min(lowest, correlation);
    highest = std::max(highest, correlation);
    order.push_back(place);
  });
  if (sorted || OrderByPlace(lowest, highest, order)) return order;
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    const Operation& x = held_.At(a);
    const Operation& y = held_.At(b);
    if (x.correlation != y.correlation) return x.correlation < y.correlation;
    if (x.graph_node != y.graph_node) return x.graph_node < y.graph_node;
    return x.start_ns < y.start_ns;
  });
  return order;
}

bool OperationWindow::OrderByPlace(uint64_t lowest, uint64_t highest, std::vector<uint32_t>& order) {
  // Correlation ids are nearly dense: a table of them is faster than sorting. 0: nothing there.
  constexpr uint64_t kSparsest = 16;
  if ((highest - lowest) / kSparsest > order.size()) return false;
  static thread_local std::vector<uint32_t> table;
  table.assign(static_cast<size_t>(highest - lowest) + 1, 0);
  for (const uint32_t place : order) {
    uint32_t& entry = table[static_cast<size_t>(held_.At(place).correlation - lowest)];
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
    held_.Clear();
  } else {
    held_.EraseIf([bound](const Operation& operation) { return operation.correlation < bound; });
  }
  ShrinkIfLarge(launches_);
}

}  // namespace gpuprobe::model
