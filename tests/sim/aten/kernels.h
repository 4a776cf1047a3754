// What some of PyTorch's own kernels leave in memory.
//
// Kernels compute nothing on the node, but programs and frameworks decide by values that came from a kernel:
// the size of a pickled object, whether two ranks agree, whether generation has ended. These come from a few
// templates of ATen, whose names say what they do and whose arguments are its structures: elementwise kernels
// over contiguous tensors, reductions, and concatenations of vectors. Those of small tensors of plain types
// are computed; no other kernel is.
#pragma once

#include <cstdint>
#include <functional>

namespace gpusim::aten {

// What the launch does when it ends; null for a kernel that is not computed. `name` is a mangled one that
// stays valid; `arguments` are the addresses of the kernel's arguments, copied before this returns. `grid_y`:
// the grid's second dimension.
std::function<void()> EffectOfKernel(const char* name, void** arguments, uint32_t grid_y);

}  // namespace gpusim::aten
