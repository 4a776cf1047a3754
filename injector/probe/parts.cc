#include "injector/probe/parts.h"

#include "injector/capture/memory/part.h"
#include "injector/capture/nccl/part.h"
#include "injector/capture/nvtx/part.h"
#include "injector/capture/sandbox/part.h"
#include "injector/core/part.h"
#include "injector/core/recording.h"

namespace gpuprobe::injector {

namespace {

// In the order in which they start: NCCL's patches for the sandbox part, too.
const Part* const kParts[] = {&kSandboxPart, &kNvtxPart, &kNcclPart, &kMemoryPart};

void ForEach(void (*Part::*step)() noexcept) noexcept {
  for (const Part* part : kParts) {
    if (part->*step != nullptr) (part->*step)();
  }
}

}  // namespace

// NCCL's and NVTX's calls come to us whether they are recorded or not; the memory part is started only if it
// has something to do.
void StartParts() noexcept {
  for (const Part* part : kParts) {
    if (part->start == nullptr || (part == &kMemoryPart && !recording.Wants(kRecordMemory))) continue;
    part->start();
  }
}
void TickParts() noexcept { ForEach(&Part::tick); }
void FinishParts() noexcept { ForEach(&Part::finish); }
void LookParts() noexcept { ForEach(&Part::look); }

}  // namespace gpuprobe::injector
