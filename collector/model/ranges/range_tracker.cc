#include "collector/model/ranges/range_tracker.h"

#include <algorithm>

namespace gpuprobe::model {

size_t PhaseNode::Merge(PhaseNode&& other) {
  size_t absorbed = 0;
  gpu_ns.Merge(other.gpu_ns);
  host_ns.Merge(other.host_ns);
  unclosed += other.unclosed;
  first_start_ns = std::min(first_start_ns, other.first_start_ns);
  for (auto& [key, child] : other.children) {
    std::unique_ptr<PhaseNode>& ours = children[key];
    if (ours == nullptr) {
      ours = std::move(child);
    } else {
      absorbed += 1 + ours->Merge(std::move(*child));
    }
  }
  other.children.clear();
  return absorbed;
}

RangeTracker::Instance& RangeTracker::Get(uint64_t id) {
  if (id == last_id_ && last_ != nullptr) return *last_;
  std::unique_ptr<Instance>& instance = live_[id];
  if (instance == nullptr) {
    instance = std::make_unique<Instance>();
    last_ = instance.get();
    last_id_ = id;
    if (live_.size() > waiting() + kMaxOpen) DropOldestOpen();
  }
  last_ = instance.get();
  last_id_ = id;
  return *instance;
}

void RangeTracker::DropOldestOpen() {
  uint64_t oldest = UINT64_MAX;
  for (const auto& [id, instance] : live_) {
    if (!instance->closed && id != last_id_) oldest = std::min(oldest, id);
  }
  if (oldest == UINT64_MAX) return;
  const auto found = live_.find(oldest);
  const std::unique_ptr<Instance> instance = std::move(found->second);
  live_.erase(found);
  phases_ -= root_.Merge(std::move(instance->settled_children));
}

void RangeTracker::AddGpuWork(uint64_t range, uint64_t start_ns, uint64_t end_ns) {
  Get(range).gpu.Add(start_ns, end_ns);
}

void RangeTracker::Close(const RangeRecord& record, bool main_thread) {
  if (record.kind == v1::RANGE_KIND_MARK || record.id == 0) return;
  Instance& instance = Get(record.id);
  if (instance.closed) return;  // an id is used once
  ++closed_;
  instance.closed = true;
  instance.unclosed = record.unclosed;
  instance.main_thread = main_thread;
  instance.parent = record.parent;
  instance.start_ns = record.start_ns;
  instance.end_ns = std::max(record.start_ns, record.end_ns);
  instance.name = {record.domain, record.name};
  if (main_thread) main_by_start_.emplace(instance.start_ns, record.id);
  waiting_.emplace(instance.end_ns, ~instance.start_ns, ~record.id);
  if (waiting() <= kMaxWaiting) return;
  if (waiting_.empty()) {
    const uint64_t id = std::get<2>(*aside_.begin());
    aside_.erase(aside_.begin());
    Settle(id);
  } else {
    SettleFirst();
  }
}

void RangeTracker::Advance(uint64_t launches_ns) {
  // Against the batch before: what a batch says about a range may come with the next one.
  const uint64_t settled_ns = advanced_ns_ > kSettleAfterNs ? advanced_ns_ - kSettleAfterNs : 0;
  advanced_ns_ = std::max(advanced_ns_, launches_ns);
  while (!waiting_.empty() && std::get<0>(waiting_.top()) < settled_ns) {
    if (!SetAside()) SettleFirst();
  }
}

bool RangeTracker::SetAside() {
  const uint64_t id = ~std::get<2>(waiting_.top());
  const auto found = live_.find(id);
  if (found == live_.end()) return false;
  const Instance& instance = *found->second;
  if (instance.parent != 0 || instance.main_thread || EnclosingOnMainThread(instance) != 0) return false;
  waiting_.pop();
  aside_.emplace(instance.start_ns, instance.end_ns, id);
  return true;
}

void RangeTracker::SettleInside(const Instance& around) {
  auto it = aside_.lower_bound({around.start_ns, 0, 0});
  while (it != aside_.end() && std::get<0>(*it) <= around.end_ns) {
    if (std::get<1>(*it) > around.end_ns) {
      ++it;
      continue;
    }
    const uint64_t id = std::get<2>(*it);
    it = aside_.erase(it);
    Settle(id);
  }
}

void RangeTracker::SettleFirst() {
  const uint64_t id = ~std::get<2>(waiting_.top());
  waiting_.pop();
  const auto found = live_.find(id);
  if (found != live_.end() && found->second->main_thread) SettleInside(*found->second);
  Settle(id);
}

uint64_t RangeTracker::EnclosingOnMainThread(const Instance& instance) const {
  // Backwards from the last one that starts before: the first that also ends after is the innermost. Ranges
  // of one thread nest, so the walk passes siblings only; it is cut off where nothing useful can be found any
  // more.
  constexpr int kMaxSteps = 256;
  auto it = main_by_start_.upper_bound(instance.start_ns);
  for (int steps = 0; it != main_by_start_.begin() && steps < kMaxSteps; ++steps) {
    --it;
    const auto found = live_.find(it->second);
    if (found != live_.end() && found->second->end_ns >= instance.end_ns) return it->second;
  }
  return 0;
}

PhaseNode& RangeTracker::Child(PhaseNode& parent, PhaseNode::Key key) {
  const auto found = parent.children.find(key);
  if (found != parent.children.end()) return *found->second;
  // Beyond the bound all further names share one phase without name.
  if (phases_ >= kMaxPhases) key = {0, 0};
  std::unique_ptr<PhaseNode>& node = parent.children[key];
  if (node == nullptr) {
    node = std::make_unique<PhaseNode>();
    ++phases_;
  }
  return *node;
}

void RangeTracker::Settle(uint64_t id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const std::unique_ptr<Instance> instance = std::move(found->second);
  live_.erase(found);
  last_ = nullptr;
  if (instance->main_thread) {
    auto [it, end] = main_by_start_.equal_range(instance->start_ns);
    while (it != end && it->second != id) ++it;
    if (it != end) main_by_start_.erase(it);
  }
  uint64_t parent_id = instance->parent;
  if (parent_id == 0 && !instance->main_thread) parent_id = EnclosingOnMainThread(*instance);
  // A parent that is still open is unknown unless something ran directly in it: it gets its instance here.
  Instance* parent = parent_id == 0 ? nullptr : &Get(parent_id);

  PhaseNode& node = Child(parent != nullptr ? parent->settled_children : root_, instance->name);
  node.gpu_ns.Add(instance->gpu.TotalNs());
  node.host_ns.Add(instance->end_ns - instance->start_ns);
  node.unclosed += instance->unclosed ? 1 : 0;
  node.first_start_ns = std::min(node.first_start_ns, instance->start_ns);
  phases_ -= node.Merge(std::move(instance->settled_children));
  if (parent != nullptr) parent->gpu.Merge(instance->gpu);
}

void RangeTracker::Finish() {
  while (!waiting_.empty()) SettleFirst();
  for (const Waiting& aside : std::exchange(aside_, {})) Settle(std::get<2>(aside));
  for (auto& [id, instance] : live_) {
    phases_ -= root_.Merge(std::move(instance->settled_children));
  }
  live_.clear();
  main_by_start_.clear();
  last_ = nullptr;
}

PhaseNode::Key RangeTracker::NameOf(uint64_t id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? PhaseNode::Key{0, 0} : found->second->name;
}

}  // namespace gpuprobe::model
