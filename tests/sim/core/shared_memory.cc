#include "tests/sim/core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <string>

#include "tests/sim/core/memory_state.h"
#include "tests/sim/core/objects.h"

namespace gpusim {
namespace {

void* SharedAt(uint64_t address) {
  return reinterpret_cast<void*>(address);
}  // NOLINT(performance-no-int-to-ptr)

// The file that holds the range from now on, or -1.
int MoveIntoFile(const Range& range) {
  const uint64_t bytes = MappedBytes(range.bytes);
  const int file = memfd_create("gpusim-shared", MFD_CLOEXEC);
  if (file < 0) return -1;
  bool moved = ftruncate(file, static_cast<off_t>(bytes)) == 0;
  for (uint64_t done = 0; moved && done < bytes;) {
    const ssize_t wrote = pwrite(file, SharedAt(range.base + done), bytes - done, static_cast<off_t>(done));
    moved = wrote > 0;
    done += moved ? static_cast<uint64_t>(wrote) : 0;
  }
  moved = moved && mmap(SharedAt(range.base), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                        0) != MAP_FAILED;
  if (moved) return file;
  close(file);
  return -1;
}

}  // namespace

CUresult Share(MemoryClass memory, uint64_t address, SharedMemory* shared) {
  if (CUctx_st* context = CurrentContextOrNull()) WaitForContext(context);  // nothing writes while it moves
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().ranges.find(address);
  if (found == Memory().ranges.end() || found->second.memory != memory) return CUDA_ERROR_INVALID_VALUE;
  Range& range = found->second;
  if (range.pool != nullptr && !range.pool->shareable) return CUDA_ERROR_INVALID_VALUE;
  if (range.file < 0) range.file = MoveIntoFile(range);
  if (range.file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *shared = {SharedMemory::kMark, getpid(), range.file, range.device, 0, range.bytes};
  return CUDA_SUCCESS;
}

CUresult MapFile(int file, uint64_t offset, uint64_t bytes, int device, MemoryClass memory,
                 uint64_t* address) {
  void* mapped =
      mmap(nullptr, MappedBytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *address = reinterpret_cast<uint64_t>(mapped);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().ranges[*address] = Range{*address, bytes, memory, device, CurrentContextOrNull(), nullptr, 0, -1};
  return CUDA_SUCCESS;
}

CUresult Map(const SharedMemory& shared, MemoryClass memory, uint64_t* address) {
  if (shared.mark != SharedMemory::kMark) return CUDA_ERROR_INVALID_VALUE;
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = MapFile(file, 0, shared.bytes, shared.device, memory, address);
  close(file);
  return result;
}

CUresult Unmap(MemoryClass memory, uint64_t address) {
  if (CUctx_st* context = CurrentContextOrNull()) WaitForContext(context);  // queued work may still use it
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().ranges.find(address);
  if (found == Memory().ranges.end() || found->second.memory != memory) return CUDA_ERROR_INVALID_VALUE;
  const Range range = found->second;
  Memory().ranges.erase(found);
  DropLocked(range);
  return CUDA_SUCCESS;
}

}  // namespace gpusim
