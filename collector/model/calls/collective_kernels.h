// Recognises NCCL's kernels, and their operations, by name.
//
// Separate because the model and the export must agree on it. Pure. NCCL's naming changes with its versions:
// ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclDevKernel_SendRecv, ncclDevKernel_Generic_1,
// ncclSymkDevKernel_AllGather_LL, ncclKernel_AllReduce_RING_LL_Sum_float; plain or mangled as a function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuprobe::model {

// The operation that a kernel of NCCL's carries: "AllReduce"; "SendRecv" for all that is built of sends and
// receives; "Generic" where the name does not say; empty: no kernel of NCCL's.
std::string_view OperationOfKernel(std::string_view name);

// StringDef ids of these operations, for records that no call names: above every id that a process may use.
inline constexpr uint32_t kFirstOperationId = uint32_t{1} << 30;
uint32_t OperationIdOfKernel(std::string_view name);  // 0: no kernel of NCCL's
// The operation of an id from there; empty for any other id.
const std::string& OperationOfId(uint32_t id);

inline bool IsCollectiveKernel(std::string_view name) { return !OperationOfKernel(name).empty(); }

}  // namespace gpuprobe::model
