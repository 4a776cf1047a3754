#include "injector/capture/nccl/kernel_launches.h"

#include <atomic>

#include "injector/capture/nccl/awaited.h"
#include "injector/capture/nccl/kernel_names.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/capture/nccl/torn_groups.h"

namespace gpuprobe::injector::nccl {

namespace {

// An object loaded after the last scan may call NCCL without our wrappers. The probe's thread looks at once
// instead of at its next turn, but only a few times, because NCCL may be linked into the program.
void SuspectNewObjects() noexcept {
  constexpr int kMaxSuspicions = 8;
  static constinit std::atomic<int> suspicions{0};
  if (suspicions.load(std::memory_order_relaxed) >= kMaxSuspicions) return;
  if (suspicions.fetch_add(1, std::memory_order_relaxed) < kMaxSuspicions) AskForScan();
}

}  // namespace

void NoteLaunch(ThreadState& thread, const KernelLaunch& kernel) noexcept {
  if (CallsOf(thread).batch != nullptr && NoteKernelLaunch(thread, kernel)) return;
  if (thread.nccl_call_depth != 0) return;
  if (!IsNcclKernel(kernel.name)) {
    thread.works_for_application = true;
    return;
  }
  const SeenLaunch launch = SeenLaunchOf(kernel);
  if (NoteLaunchPastUs(thread, launch) || NoteAwaitedLaunch(thread, launch)) return;
  NotePluginLaunch(thread, kernel.correlation);
  SuspectNewObjects();
}

}  // namespace gpuprobe::injector::nccl
