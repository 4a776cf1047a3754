// The steps of a process on each GPU that it computes on.
//
// Nearly every process drives one GPU, and one tracker reads all of its operations. If a process launches
// kernels on several, each GPU gets a tracker of its own: a step of the program repeats on each of them in
// the order of its launches, whatever order the threads that launch them take. Example: four threads train
// on a GPU each. Their launches interleave differently in every step, those on GPU 2 never do.
//
// Where nothing on a device shows where steps end, the first device's steps are its steps. Example:
// torch.nn.DataParallel copies the batch to GPU 0, which sends parts of it to the others.
//
// The first device is the process's own, whose steps are the process's. If another one turns out to do nearly
// all of the work, because a few kernels on GPU 0 loaded a checkpoint, that one becomes the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/operations/device_work.h"
#include "collector/model/operations/operation.h"
#include "collector/model/operations/step_operations.h"
#include "collector/model/process/host_frames.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/host_activity.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_tracker.h"
#include "collector/records/process_names.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class DeviceSteps {
 public:
  static constexpr size_t kMost = 64;  // devices; work on further ones is the first one's
  // After this many steps of one device, the others must have shown theirs.
  static constexpr uint64_t kLeastSteps = 16;
  // A device with fewer than one in this many of another's kernels does not count as driven.
  static constexpr uint64_t kDrivenOneIn = 100;

  // By the device's ordinal.
  using Definitions = std::map<uint32_t, StepDefinition>;

  struct Device {
    Device(const ProcessNames& names, const DeviceWork& work, StepTracker* tokens)
        : operations(names, work, steps, tokens == nullptr ? steps : *tokens) {}

    std::optional<uint32_t> ordinal;  // absent: no kernel ran yet
    uint64_t kernels = 0;
    uint32_t thread = 0;     // that launched there last
    bool follows = false;    // its steps are the first device's
    uint64_t next_step = 0;  // then: the first of these that was not copied yet
    uint64_t revisions = 0;  // of the first device's, when these were copied
    HostSample newest;       // of the host; its time is 0: there is none
    StepTracker steps;
    StepOperations operations;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, ordinal, kernels, thread, follows, next_step, revisions, newest, steps,
                      operations);
    }
  };

  DeviceSteps(const ProcessNames& names, const DeviceWork& work);

  // Before anything else.
  void SetMarker(const StepMarker& marker);
  // The step definitions that an earlier replay of the process learned, by device.
  void Know(Definitions known) { known_ = std::move(known); }
  // See StepTracker::KeepPlaced. Before anything else.
  void KeepPlaced();
  // See StepTracker::HandOn. Before anything else.
  void HandOn();
  // The steps that were completed since the last call, for roll-ups.
  std::vector<RankStepRecord> TakeCompleted();
  // How many these are.
  size_t CompletedSince() const;
  // From a roll-up, in place of operations.
  void AddCompleted(const RankStepRecord& step);
  // Adds devices up to this one. False: there cannot be so many.
  bool Reach(size_t place);
  void FinishCompleted() {
    ForEach([](StepTracker& s) { s.FinishCompleted(); });
  }
  // See StepTracker::KnowWarmup. Before any step.
  void KnowWarmup(uint64_t steps);
  // See StepTracker::learned.
  Definitions Learned() const;
  // See StepTracker, as is everything that follows.
  void RecordsSome();
  void AddRecorded(const RecordedStepRecord& step) {
    ForEach([&](StepTracker& s) { s.AddRecorded(step); });
  }
  void AddRange(uint64_t id, uint64_t parent, uint64_t start_ns, uint64_t end_ns, uint32_t name_id,
                std::string_view name) {
    ForEach([&](StepTracker& s) { s.AddRange(id, parent, start_ns, end_ns, name_id, name); });
  }
  void NoteLoss(bool launches);
  void NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
    ForEach([&](StepTracker& s) { s.NoteClockStep(by_ns, from_ns, to_ns); });
  }
  // Kernels in this context run on this device.
  void NoteContext(uint32_t context, uint32_t device) { contexts_[context] = device; }
  // A thread was blocked until work in this context had ended. Threads that drive other devices alone were
  // not.
  void AddBlockedInContext(uint32_t context, uint64_t start_ns, uint64_t end_ns);
  void AddMemoryCall(uint32_t device, uint64_t start_ns, uint64_t end_ns);
  void AddDriverCall(const DriverCallRecord& call);
  // Rows of one time come together. EndSamples: no more of them in this batch.
  void AddSample(const HostSampleRecord& sample, const HostFrames& frames);
  void EndSamples(const HostFrames& frames);
  // In launch order.
  void Add(const Operation& operation);
  void EndBatch();
  // Host phases on the process's own device.
  std::vector<HostPhases> TakeHostPhases();
  void Finish(bool cut_off);

  // Sizes never shrink, and a place stays a device's unless the first one changes.
  size_t size() const { return devices_.size(); }
  const Device& At(size_t place) const { return *devices_[place]; }
  StepTracker& first() { return devices_.front()->steps; }
  const StepTracker& first() const { return devices_.front()->steps; }
  // Where the device is; 0 if it is not among them.
  size_t PlaceOf(std::optional<uint32_t> device) const;
  // Whether the process uses the device regularly (kDrivenOneIn).
  bool IsDriven(size_t place) const;
  // As PlaceOf, and 0 for devices that are not driven.
  size_t ReportedPlaceOf(uint32_t device) const {
    const size_t place = PlaceOf(device);
    return IsDriven(place) ? place : 0;
  }
  // How many are driven.
  size_t Driven() const;

 private:
  template <typename Function>
  void ForEach(Function function) {
    for (const auto& device : devices_) function(device->steps);
  }
  Device& AddDevice();
  // The device's first kernel names its ordinal.
  void Name(Device& device, uint32_t ordinal);
  // Where the operation belongs.
  size_t PlaceFor(const Operation& operation);
  void ChangeFirst(size_t place);
  void AddBlocked(const Device& by, uint64_t start_ns, uint64_t end_ns);
  // Of the threads that a sample may show, the one that launches on the device.
  uint32_t LauncherOf(const Device& device) const {
    return devices_.size() == 1 && main_launches_ ? main_thread_ : device.thread;
  }
  // Decides which devices follow the first; `at_end`: no more will come.
  void ChooseFollowers(bool at_end);
  // Hands the first one's steps on to those that follow.
  void FollowFirst(bool at_end);

  const ProcessNames& names_;
  const DeviceWork& work_;
  StepMarker marker_;
  bool some_ = false;
  bool lossy_ = false;
  bool keeps_placed_ = false;
  bool hands_on_ = false;
  Definitions known_;
  std::optional<uint64_t> warmup_;  // if it is known
  std::vector<std::unique_ptr<Device>> devices_;
  uint64_t next_choice_ = kLeastSteps;                // when any device has this many steps
  uint64_t last_ = 0;                                 // place of the last operation
  absl::flat_hash_map<uint32_t, uint32_t> contexts_;  // to devices
  bool main_launches_ = false;
  uint32_t main_thread_ = 0;               // then
  std::vector<HostSampleRecord> instant_;  // of threads that were seen at one time

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    uint64_t count = devices_.size();
    archive.Members(
        this,
        Rebuilt(names_, work_, marker_, some_, keeps_placed_, hands_on_, known_, warmup_, devices_, instant_),
        lossy_, next_choice_, last_, contexts_, main_launches_, main_thread_);
    archive(count);
    archive.Require(count > 0 && count <= kMost && last_ < count);
    while (archive.ok() && devices_.size() < count) AddDevice();
    for (const auto& device : devices_) archive(*device);
    if (!archive.ok()) last_ = 0;
  }
};

}  // namespace gpuprobe::model
