#include "collector/model/process/device_steps.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "collector/model/process/host_witness.h"
#include "collector/model/steps/step_rows.h"

namespace gpuprobe::model {

DeviceSteps::DeviceSteps(const ProcessNames& names, const DeviceWork& work) : names_(names), work_(work) {
  AddDevice();
}

DeviceSteps::Device& DeviceSteps::AddDevice() {
  StepTracker* tokens = devices_.empty() ? nullptr : &devices_.front()->steps;
  Device& device = *devices_.emplace_back(std::make_unique<Device>(names_, work_, tokens));
  device.steps.SetMarker(marker_);
  device.operations.SetMarker(marker_);
  if (warmup_.has_value()) device.steps.KnowWarmup(*warmup_);
  if (some_) device.steps.RecordsSome();
  if (keeps_placed_) device.steps.KeepPlaced();
  if (hands_on_) device.steps.HandOn();
  if (lossy_) device.steps.NoteLoss(false);
  return device;
}

void DeviceSteps::Name(Device& device, uint32_t ordinal) {
  device.ordinal = ordinal;
  if (const auto known = known_.find(ordinal); known != known_.end()) device.steps.Know(known->second);
}

void DeviceSteps::KnowWarmup(uint64_t steps) {
  warmup_ = steps;
  ForEach([&](StepTracker& s) { s.KnowWarmup(steps); });
}

DeviceSteps::Definitions DeviceSteps::Learned() const {
  Definitions learned;
  for (const auto& device : devices_) {
    if (device->ordinal.has_value() && device->steps.learned().has_value())
      learned[*device->ordinal] = *device->steps.learned();
  }
  return learned;
}

void DeviceSteps::KeepPlaced() {
  keeps_placed_ = true;
  ForEach([](StepTracker& s) { s.KeepPlaced(); });
}

void DeviceSteps::HandOn() {
  hands_on_ = true;
  ForEach([](StepTracker& s) { s.HandOn(); });
}

std::vector<RankStepRecord> DeviceSteps::TakeCompleted() {
  std::vector<RankStepRecord> taken;
  for (size_t place = 0; place < devices_.size(); ++place) {
    Device& device = *devices_[place];
    for (const StepTracker::Completed& step : device.steps.TakeCompleted()) {
      RankStepRecord& row = taken.emplace_back(RowOf(step.record));
      row.place = static_cast<uint32_t>(place);
      row.device = device.ordinal.has_value() ? static_cast<int32_t>(*device.ordinal) : -1;
      row.kernels = device.kernels;
      row.follows = device.follows;
      row.revision = step.revision;
      row.annotated = step.annotated;
    }
  }
  return taken;
}

size_t DeviceSteps::CompletedSince() const {
  size_t sum = 0;
  for (const auto& device : devices_) sum += device->steps.completed_since();
  return sum;
}

bool DeviceSteps::Reach(size_t place) {
  if (place >= kMost) return false;
  while (devices_.size() <= place) AddDevice();
  return true;
}

void DeviceSteps::AddCompleted(const RankStepRecord& row) {
  const auto place = static_cast<size_t>(row.place);
  if (!Reach(place)) return;
  if (row.device >= 0) {
    const auto ordinal = static_cast<uint32_t>(row.device);
    const size_t known = PlaceOf(ordinal);
    // Another device has become the first one.
    if (known != 0 && place == 0) ChangeFirst(known);
    devices_[place]->ordinal = ordinal;
  }
  Device& device = *devices_[place];
  device.kernels = row.kernels;
  device.follows = row.follows;
  device.steps.AddCompleted({.record = RecordOf(row), .annotated = row.annotated, .revision = row.revision});
}

void DeviceSteps::SetMarker(const StepMarker& marker) {
  marker_ = marker;
  for (const auto& device : devices_) {
    device->steps.SetMarker(marker);
    device->operations.SetMarker(marker);
  }
}

void DeviceSteps::RecordsSome() {
  some_ = true;
  ForEach([](StepTracker& s) { s.RecordsSome(); });
}

void DeviceSteps::NoteLoss(bool launches) {
  lossy_ = true;
  ForEach([&](StepTracker& s) { s.NoteLoss(launches); });
}

void DeviceSteps::AddBlockedInContext(uint32_t context, uint64_t start_ns, uint64_t end_ns) {
  const auto device = contexts_.find(context);
  if (devices_.size() > 1 && device != contexts_.end()) {
    AddBlocked(*devices_[PlaceOf(device->second)], start_ns, end_ns);
    return;
  }
  ForEach([&](StepTracker& s) { s.AddBlocked(start_ns, end_ns); });
}

void DeviceSteps::AddBlocked(const Device& by, uint64_t start_ns, uint64_t end_ns) {
  for (const auto& device : devices_) {
    if (device.get() == &by || device->thread == by.thread) device->steps.AddBlocked(start_ns, end_ns);
  }
}

void DeviceSteps::AddMemoryCall(uint32_t device, uint64_t start_ns, uint64_t end_ns) {
  devices_[PlaceOf(device)]->steps.AddMemoryCall(start_ns, end_ns);
}

void DeviceSteps::AddDriverCall(const DriverCallRecord& call) {
  for (const auto& device : devices_) {
    if (call.thread == device->thread || call.thread == LauncherOf(*device))
      device->steps.AddCall(call.start_ns, call.end_ns, call.function);
  }
}

void DeviceSteps::AddSample(const HostSampleRecord& sample, const HostFrames& frames) {
  constexpr size_t kMostThreads = 64;
  if (!instant_.empty() && instant_.front().time_ns != sample.time_ns) EndSamples(frames);
  if (instant_.size() < kMostThreads) instant_.push_back(sample);
}

void DeviceSteps::EndSamples(const HostFrames& frames) {
  if (instant_.empty()) return;
  for (const auto& device : devices_) {
    device->newest = WitnessOf(instant_, LauncherOf(*device), device->thread, frames);
    device->steps.AddSample(device->newest);
  }
  instant_.clear();
}

size_t DeviceSteps::PlaceOf(std::optional<uint32_t> device) const {
  for (size_t place = 0; place < devices_.size(); ++place) {
    if (devices_[place]->ordinal == device) return place;
  }
  return 0;
}

size_t DeviceSteps::PlaceFor(const Operation& operation) {
  if (operation.kind == OperationKind::kUnseen) return static_cast<size_t>(last_);  // device not known
  const bool kernel =
      operation.kind == OperationKind::kKernel || operation.kind == OperationKind::kCollectiveKernel;
  size_t place = PlaceOf(operation.device);
  if (!kernel) return place;
  if (!devices_.front()->ordinal.has_value()) Name(*devices_.front(), operation.device);
  if (devices_[place]->ordinal != operation.device && devices_.size() < kMost) {
    place = devices_.size();
    Name(AddDevice(), operation.device);
  }
  ++devices_[place]->kernels;
  return place;
}

void DeviceSteps::Add(const Operation& operation) {
  constexpr uint64_t kSurely = 256;  // kernels
  const size_t place = PlaceFor(operation);
  last_ = place;
  Device& device = *devices_[place];
  if (operation.launched) {
    device.thread = operation.thread;
    if (!main_launches_ && names_.IsMainThread(operation.thread)) {
      main_launches_ = true;
      main_thread_ = operation.thread;
    }
  }
  // A copy to the host that is not asynchronous, or cannot be, blocks as a synchronising call does.
  if (operation.blocks_host && operation.launched && operation.launch_ns < operation.end_ns)
    AddBlocked(device, operation.launch_ns, operation.end_ns);
  device.steps.Add(device.operations.Of(operation));
  if (place != 0 && device.kernels == kSurely && !IsDriven(0)) ChangeFirst(place);
}

void DeviceSteps::ChangeFirst(size_t place) {
  Device& first = *devices_.front();
  Device& other = *devices_[place];
  std::swap(first.ordinal, other.ordinal);
  std::swap(first.kernels, other.kernels);
  first.steps.SwapSteps(other.steps);
  for (const auto& device : devices_) device->follows = false;
  last_ = 0;
}

void DeviceSteps::EndBatch() {
  if (devices_.size() < 2) return;
  uint64_t most = 0;
  for (const auto& device : devices_) most = std::max(most, device->steps.count());
  if (most >= next_choice_) {
    next_choice_ = 2 * most;
    ChooseFollowers(false);
  }
  FollowFirst(false);
}

void DeviceSteps::ChooseFollowers(bool at_end) {
  if (!first().ShowsSteps(at_end)) {
    for (size_t place = 1; place < devices_.size(); ++place) {
      if (!devices_[place]->steps.ShowsSteps(at_end)) continue;
      ChangeFirst(place);
      break;
    }
  }
  for (size_t place = 1; place < devices_.size(); ++place) {
    Device& device = *devices_[place];
    // One with less work than a kernel a step has no part in them.
    if (device.kernels >= std::max<uint64_t>(first().count(), 1) && !device.steps.ShowsSteps(at_end))
      device.follows = true;
  }
}

void DeviceSteps::FollowFirst(bool at_end) {
  const std::deque<StepRecord>& steps = first().steps();
  for (size_t place = 1; place < devices_.size(); ++place) {
    Device& device = *devices_[place];
    if (!device.follows) continue;
    if (device.revisions != first().revisions()) device.next_step = 0;
    device.revisions = first().revisions();
    auto at = std::partition_point(steps.begin(), steps.end(),
                                   [&](const StepRecord& step) { return step.index < device.next_step; });
    for (; at != steps.end(); ++at) {
      const auto next = std::next(at);
      if (next == steps.end() && !at_end) break;
      device.next_step = at->index + 1;
      device.steps.AddStepOfProcess(at->first_launch_ns,
                                    next == steps.end() ? UINT64_MAX : next->first_launch_ns);
    }
  }
}

void DeviceSteps::Finish(bool cut_off) {
  if (devices_.size() > 1) ChooseFollowers(true);
  first().Finish(cut_off);
  FollowFirst(true);
  for (size_t place = 1; place < devices_.size(); ++place) devices_[place]->steps.Finish(cut_off);
}

std::vector<HostPhases> DeviceSteps::TakeHostPhases() {
  for (size_t place = 1; place < devices_.size(); ++place) devices_[place]->steps.TakeHostPhases();
  return first().TakeHostPhases();
}

bool DeviceSteps::IsDriven(size_t place) const {
  uint64_t most = 0;
  for (const auto& device : devices_) most = std::max(most, device->kernels);
  return devices_[place]->kernels > 0 && devices_[place]->kernels * kDrivenOneIn >= most;
}

size_t DeviceSteps::Driven() const {
  size_t driven = 0;
  for (size_t place = 0; place < devices_.size(); ++place) driven += IsDriven(place) ? 1 : 0;
  return driven;
}

}  // namespace gpuprobe::model
