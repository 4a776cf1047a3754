#include "collector/model/collective_kernels.h"

#include <iterator>
#include <vector>

namespace gpuprobe::model {
namespace {

constexpr std::string_view kPrefixes[] = {"ncclDevKernel_", "ncclSymkDevKernel_", "ncclSymDevKernel_",
                                          "ncclKernel_"};
// The longer of two that begin alike comes first; the last one stands for all others.
constexpr std::string_view kOperations[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                            "Reduce",    "AlltoAll",  "Gather",        "Scatter",
                                            "SendRecv",  "Generic"};
constexpr size_t kGeneric = std::size(kOperations) - 1;

// Without the "_Z<length>" of a mangled function.
std::string_view Plain(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  const size_t digits = name.find_first_not_of("0123456789", 2);
  return digits == std::string_view::npos ? std::string_view() : name.substr(digits);
}

}  // namespace

uint32_t OperationIdOfKernel(std::string_view name) {
  const std::string_view plain = Plain(name);
  for (const std::string_view prefix : kPrefixes) {
    if (!plain.starts_with(prefix)) continue;
    const std::string_view rest = plain.substr(prefix.size());
    // A mangled name goes on with its arguments right after the operation.
    for (size_t i = 0; i < kGeneric; ++i) {
      if (rest.starts_with(kOperations[i])) return kFirstOperationId + static_cast<uint32_t>(i);
    }
    return kFirstOperationId + kGeneric;
  }
  return 0;
}

std::string_view OperationOfKernel(std::string_view name) { return OperationOfId(OperationIdOfKernel(name)); }

const std::string& OperationOfId(uint32_t id) {
  static const auto* const kNames =
      new std::vector<std::string>(std::begin(kOperations), std::end(kOperations));
  static const std::string kNone;
  return id >= kFirstOperationId && id - kFirstOperationId < kNames->size()
             ? (*kNames)[id - kFirstOperationId]
             : kNone;
}

}  // namespace gpuprobe::model
