// Which kernels are NCCL's, and what they do, by their names.
//
// Separate because the model and the export must agree on it. Pure. NCCL's naming changes with its versions:
// ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclDevKernel_SendRecv, ncclDevKernel_Generic_1,
// ncclSymkDevKernel_AllGather_LL, ncclKernel_AllReduce_RING_LL_Sum_float; plain or mangled as a function.
#pragma once

#include <string_view>

namespace gpuprobe::model {

// The operation that a kernel of NCCL's carries: "AllReduce"; "SendRecv" for all that is built of sends and
// receives; "Generic" where the name does not say; empty: no kernel of NCCL's.
std::string_view OperationOfKernel(std::string_view name);

inline bool IsCollectiveKernel(std::string_view name) { return !OperationOfKernel(name).empty(); }

}  // namespace gpuprobe::model
