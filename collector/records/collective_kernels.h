// Decides which kernels communicate, and recognises NCCL's operations by their kernels' names.
//
// A kernel's name is the weakest evidence: before CUPTI 13.4 Update 1, records may have the name of a kernel
// whose module was unloaded. Example: torch.compile unloads the variants that lost, and NCCL's kernel is
// loaded in the place of one of them. Every all-reduce then reads triton_per_fused_native_layer_norm_0, but
// an NCCL call launched it, and that decides.
//
// The model, the export, the timelines and the page must agree on it. Pure. NCCL's naming changes with its
// versions: ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclDevKernel_SendRecv, ncclDevKernel_Generic_1,
// ncclSymkDevKernel_AllGather_LL, ncclKernel_AllReduce_RING_LL_Sum_float; plain or mangled as a function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

// kOwnExchange: communicates without NCCL, such as vLLM's cross_device_reduce. It waits for other GPUs, but
// belongs to no call, communicator or size.
enum class KernelNature : uint8_t { kCompute, kNccl, kOwnExchange };
inline bool Communicates(KernelNature nature) { return nature != KernelNature::kCompute; }

// By a kernel's name alone, mangled or not.
KernelNature NatureByName(std::string_view name);

struct KernelEvidence {
  KernelNature named = KernelNature::kCompute;  // NatureByName of the name in its record
  uint64_t plan = 0;  // of the NCCL calls that its launch, or its graph node, carries
  uint32_t owner = v1::KERNEL_OWNER_NOT_SAID;  // of its launch: a v1::KernelOwner
};
// The one place that decides what communicates.
inline KernelNature NatureOf(const KernelEvidence& evidence) {
  if (evidence.plan != 0 || evidence.owner == v1::KERNEL_OWNER_NCCL) return KernelNature::kNccl;
  const bool stale = evidence.named == KernelNature::kNccl && evidence.owner == v1::KERNEL_OWNER_OTHER;
  return stale ? KernelNature::kCompute : evidence.named;
}
// Whether the name in its record is another kernel's.
inline bool IsMisnamed(KernelNature nature, KernelNature named) {
  return (nature == KernelNature::kNccl) != (named == KernelNature::kNccl);
}

// The operation that an NCCL kernel carries: "AllReduce"; "SendRecv" for every operation built of sends and
// receives; "Generic" if the name has no operation; empty: not an NCCL kernel.
std::string_view OperationOfKernel(std::string_view name);

// StringDef ids of these operations, for records that no call names: above every id that a process may use.
inline constexpr uint32_t kFirstOperationId = uint32_t{1} << 30;
uint32_t OperationIdOfKernel(std::string_view name);  // 0: not an NCCL kernel
// The operation of an id from there; empty for any other id.
const std::string& OperationOfId(uint32_t id);

}  // namespace gpuprobe::model
