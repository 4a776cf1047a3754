#include "collector/records/collective_kernels.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "proto/nccl_operations.h"

namespace gpuprobe::model {
namespace {

// Functions that exchange data between GPUs without NCCL: of vLLM and SGLang, and of PyTorch's symmetric
// memory.
constexpr std::string_view kOwnExchanges[] = {"cross_device_reduce", "shot_all_reduce", "multimem_all",
                                              "multimem_one_shot"};

// The operations that kernels are named after. The last one stands for all kernels whose names say nothing.
std::vector<std::string> MakeNames() {
  std::vector<std::string> names;
  for (const nccl::OperationFacts& facts : nccl::kOperations) {
    if (!facts.kernel.empty() && facts.operation != nccl::Operation::kGeneric &&
        std::find(names.begin(), names.end(), facts.kernel) == names.end())
      names.emplace_back(facts.kernel);
  }
  // If one name is a prefix of another, the longer one comes first.
  std::stable_sort(names.begin(), names.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  names.emplace_back(nccl::NameOf(nccl::Operation::kGeneric));
  return names;
}

const std::vector<std::string>& Names() {
  static const auto* const kNames = new std::vector<std::string>(MakeNames());
  return *kNames;
}

// Without the "_Z<length>" of a mangled function.
std::string_view Plain(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  const size_t digits = name.find_first_not_of("0123456789", 2);
  return digits == std::string_view::npos ? std::string_view() : name.substr(digits);
}

}  // namespace

uint32_t OperationIdOfKernel(std::string_view name) {
  const std::string_view plain = Plain(name);
  for (const std::string_view prefix : nccl::kKernelPrefixes) {
    if (!plain.starts_with(prefix)) continue;
    const std::string_view rest = plain.substr(prefix.size());
    // A mangled name goes on with its arguments right after the operation.
    const std::vector<std::string>& names = Names();
    const auto known = std::find_if(names.begin(), names.end() - 1,
                                    [rest](const std::string& op) { return rest.starts_with(op); });
    return kFirstOperationId + static_cast<uint32_t>(known - names.begin());
  }
  return 0;
}

KernelNature NatureByName(std::string_view name) {
  if (nccl::IsKernelName(name)) return KernelNature::kNccl;
  const std::string_view function = name.substr(0, name.find('<'));
  const bool own =
      std::any_of(std::begin(kOwnExchanges), std::end(kOwnExchanges),
                  [&](std::string_view word) { return function.find(word) != std::string_view::npos; });
  return own ? KernelNature::kOwnExchange : KernelNature::kCompute;
}

std::string_view OperationOfKernel(std::string_view name) { return OperationOfId(OperationIdOfKernel(name)); }

const std::string& OperationOfId(uint32_t id) {
  static const std::string kNone;
  return id >= kFirstOperationId && id - kFirstOperationId < Names().size() ? Names()[id - kFirstOperationId]
                                                                            : kNone;
}

}  // namespace gpuprobe::model
