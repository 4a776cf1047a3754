// Copies and fills: their kind, how long they take, which bytes they move, and when the calling thread goes
// on.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpusim {

// A box of bytes at both ends; a plain copy has one row.
struct CopyShape {
  uint64_t destination = 0;
  uint64_t source = 0;
  size_t width_bytes = 0;
  size_t height = 1;
  size_t depth = 1;
  size_t destination_pitch = 0;
  size_t source_pitch = 0;
  size_t destination_slice = 0;  // bytes from one plane to the next
  size_t source_slice = 0;
  bool destination_is_array = false;
  bool source_is_array = false;
};

enum class CopyCall { kSynchronous, kAsynchronous };

// Issues the copy as the driver would: pageable memory is staged or waited for, a synchronous copy between
// devices is not waited for.
CUresult Copy(const CopyShape& shape, CopyCall call, CUstream stream);
CUresult CopyLine(uint64_t destination, uint64_t source, size_t bytes, CopyCall call, CUstream stream);

struct FillShape {
  uint64_t destination = 0;
  size_t pitch = 0;
  uint32_t value = 0;
  unsigned element_bytes = 1;  // 1, 2 or 4
  size_t width = 0;            // elements
  size_t height = 1;
};

CUresult Fill(const FillShape& shape, CopyCall call, CUstream stream);

// For graph nodes that are made by hand.
struct Work;
CUresult MakeCopyWork(const CopyShape& shape, Work* work);
CUresult MakeFillWork(const FillShape& shape, Work* work);

}  // namespace gpusim
