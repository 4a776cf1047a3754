#include "collector/model/process/host_witness.h"

#include <algorithm>

#include "collector/records/system_calls.h"

namespace gpuprobe::model {
namespace {

using Waits = SystemCallInfo::Waits;

// What a call, or the loader of batches, waits for is its own affair, whatever other threads do. The lock of
// the interpreter is everybody's.
bool WaitsForThread(const HostSampleRecord& r, const HostFrames& frames) {
  const bool own_affair =
      r.call != kTakesLock && (r.call != 0 || frames.Of(r.frame).task == HostTask::kLoads);
  return !own_affair && SystemCallOf(r.system_call).waits == Waits::kForThread;
}

bool IsAtWork(const HostSampleRecord& r) {
  if (r.call == kTakesLock) return false;
  if (r.state == v1::THREAD_STATE_RUNNING || r.state == v1::THREAD_STATE_UNINTERRUPTIBLE || r.call != 0)
    return true;
  return SystemCallOf(r.system_call).waits == Waits::kForDescriptor;
}

}  // namespace

HostSample WitnessOf(std::span<const HostSampleRecord> threads, uint32_t launcher, uint32_t other,
                     const HostFrames& frames) {
  const auto find = [&](uint32_t thread) {
    return std::find_if(threads.begin(), threads.end(),
                        [&](const HostSampleRecord& r) { return r.thread == thread; });
  };
  auto waits = find(launcher);
  if (waits == threads.end()) waits = find(other);
  if (waits == threads.end()) waits = threads.begin();
  auto works = waits;
  if (WaitsForThread(*waits, frames)) {
    if (const auto it = find(other); it != threads.end() && it != waits && IsAtWork(*it)) {
      works = it;
    } else if (const auto first = std::find_if(threads.begin(), threads.end(), IsAtWork);
               first != threads.end()) {
      works = first;
    }
  }
  const HostFrames::Frame& inner = frames.Of(works->frame);
  const HostFrames::Frame& outer = frames.Of(waits->frame);
  HostSample sample{.time_ns = works->time_ns,
                    .since_ns = works->since_ns,
                    .run_delay_ns = works->run_delay_ns,
                    .in_gap = works->in_gap,
                    .place = {}};
  // A thread that runs Python has a purpose of its own; autograd's runs none.
  const HostFrames::Frame& code = inner.at.function != 0 ? inner : outer;
  const bool reads = code.task == HostTask::kUnknown && SystemCallOf(works->system_call).reads;
  sample.place.task = reads ? HostTask::kLoads : code.task;
  const bool takes_lock = std::any_of(threads.begin(), threads.end(),
                                      [](const HostSampleRecord& r) { return r.call == kTakesLock; });
  const bool is_seen_at_work = works != waits || IsAtWork(*works);
  if (takes_lock && !is_seen_at_work) {
    sample.place = {.kind = HostPlace::Kind::kLockHeld};  // who has it was not seen
    return sample;
  }
  if (takes_lock && works->thread != launcher && works->thread != other && inner.at.function != 0)
    sample.place.kind = HostPlace::Kind::kLockHeld;
  sample.place.call = works->call == kTakesLock ? 0 : works->call;
  sample.place.system_call = works->system_call;
  sample.place.file = works->file;
  sample.place.at = code.at;
  sample.place.own = code.own;
  return sample;
}

}  // namespace gpuprobe::model
