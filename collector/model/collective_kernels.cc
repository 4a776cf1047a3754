#include "collector/model/collective_kernels.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

constexpr std::string_view kPrefixes[] = {"ncclDevKernel_", "ncclSymkDevKernel_", "ncclSymDevKernel_",
                                          "ncclKernel_"};
constexpr std::string_view kOperations[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                                            "AlltoAll",  "Gather",    "Scatter",       "SendRecv"};

// Without the "_Z<length>" of a mangled function.
std::string_view Plain(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  const size_t digits = name.find_first_not_of("0123456789", 2);
  return digits == std::string_view::npos ? std::string_view() : name.substr(digits);
}

}  // namespace

std::string_view OperationOfKernel(std::string_view name) {
  const std::string_view plain = Plain(name);
  for (const std::string_view prefix : kPrefixes) {
    if (!plain.starts_with(prefix)) continue;
    const std::string_view rest = plain.substr(prefix.size());
    const std::string_view token = rest.substr(0, rest.find_first_of("_("));
    // A mangled name goes on with its arguments right after the operation.
    const auto* best = std::find_if(std::begin(kOperations), std::end(kOperations),
                                    [&](std::string_view op) { return token.starts_with(op); });
    return best == std::end(kOperations) ? "Generic" : *best;
  }
  return {};
}

}  // namespace gpuprobe::model
