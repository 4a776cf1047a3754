#include "injector/parts.h"

#include "injector/recording.h"

#ifdef GPUPROBE_PART_NCCL
#include "injector/nccl/part.h"
#endif
#ifdef GPUPROBE_PART_NVTX
#include "injector/nvtx/part.h"
#endif
#ifdef GPUPROBE_PART_MEMORY
#include "injector/memory/part.h"
#endif

namespace gpuprobe::injector {

constinit EventNames event_names;

namespace {

// In the order in which they start. The null at the end keeps the list valid in a build without parts.
const Part* const kParts[] = {
#ifdef GPUPROBE_PART_NVTX
    &kNvtxPart,
#endif
#ifdef GPUPROBE_PART_NCCL
    &kNcclPart,
#endif
#ifdef GPUPROBE_PART_MEMORY
    &kMemoryPart,
#endif
    nullptr,
};

void ForEach(void (*Part::*step)() noexcept) noexcept {
  for (const Part* part : kParts) {
    if (part != nullptr && part->*step != nullptr) (part->*step)();
  }
}

}  // namespace

// NCCL's and NVTX's calls come to us whether they are recorded or not; the memory part is started only if it
// has something to do.
void StartParts() noexcept {
  for (const Part* part : kParts) {
    if (part == nullptr || part->start == nullptr) continue;
#ifdef GPUPROBE_PART_MEMORY
    if (part == &kMemoryPart && !recording.Wants(kRecordMemory)) continue;
#endif
    part->start();
  }
}
void TickParts() noexcept { ForEach(&Part::tick); }
void FinishParts() noexcept { ForEach(&Part::finish); }
void LookParts() noexcept { ForEach(&Part::look); }

}  // namespace gpuprobe::injector
