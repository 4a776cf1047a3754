#include "injector/capture/nccl/kernel_names.h"

#include <array>
#include <cstring>
#include <iterator>
#include <string_view>

#include "injector/base/text.h"
#include "injector/capture/nccl/entry_points.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::injector::nccl {

namespace {

constexpr uint16_t Bit(EntryPoint op) noexcept {
  return static_cast<uint16_t>(1u << static_cast<unsigned>(op));
}

// The operations are the first entries of the table, so that a mask of 16 bits holds them.
static_assert(static_cast<int>(EntryPoint::kRecv) < 16);

// The operations that a kernel with this token in its name can carry: the operation itself; for SendRecv, all
// that NCCL may build from sends and receives.
constexpr uint16_t OpsOfKernel(std::string_view token) noexcept {
  if (token == gpuprobe::nccl::NameOf(gpuprobe::nccl::Operation::kGeneric)) return kAnyOp;
  const bool pairs = token == gpuprobe::nccl::NameOf(gpuprobe::nccl::Operation::kSendRecv);
  uint16_t ops = 0;
  for (const gpuprobe::nccl::OperationFacts& facts : gpuprobe::nccl::kOperations) {
    if (facts.kernel != token && !(pairs && facts.built_of_transfers)) continue;
    const EntryPoint entry_point = FindOperation(facts.name);
    if (entry_point != EntryPoint::kCount) ops |= Bit(entry_point);
  }
  return ops;
}

struct OpToken {
  std::string_view token;
  uint16_t ops = 0;
};

constexpr auto kOpTokens = [] {
  std::array<OpToken, std::size(gpuprobe::nccl::kOperations)> tokens{};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = gpuprobe::nccl::kOperations[i].kernel;
    tokens[i] = {token, OpsOfKernel(token)};
  }
  return tokens;
}();

struct TypeToken {
  std::string_view token;
  uint16_t datatypes;
};

// Integer sums of either signedness share a kernel.
constexpr TypeToken kTypeTokens[] = {
    {"i8", 0x003},  {"u8", 0x003},  {"i32", 0x00c}, {"u32", 0x00c},  {"i64", 0x030},    {"u64", 0x030},
    {"f16", 0x040}, {"f32", 0x080}, {"f64", 0x100}, {"bf16", 0x200}, {"f8e4m3", 0x400}, {"f8e5m2", 0x800},
};

constexpr std::string_view kDeviceKernel = "ncclDevKernel_";

// Skips "_Z<length>" of a mangled function name.
std::string_view StripMangling(std::string_view name) noexcept {
  if (!StartsWith(name, "_Z")) return name;
  size_t at = 2;
  size_t length = 0;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9' && at < 6) {
    length = length * 10 + static_cast<size_t>(name[at] - '0');
    ++at;
  }
  return Slice(name, at, length);
}

std::string_view NextToken(std::string_view* rest) noexcept {
  size_t end = 0;
  while (end < rest->size() && (*rest)[end] != '_' && (*rest)[end] != '(') ++end;
  const std::string_view token = Slice(*rest, 0, end);
  const bool more = end < rest->size() && (*rest)[end] == '_';
  rest->remove_prefix(more ? end + 1 : rest->size());
  return token;
}

}  // namespace

KernelTraits ParseKernelName(const char* name) noexcept {
  constexpr KernelTraits kNone{};
  if (name == nullptr) return kNone;
  std::string_view rest = StripMangling(std::string_view(name, strnlen(name, 256)));
  const auto* prefix = std::begin(gpuprobe::nccl::kKernelPrefixes);
  while (prefix != std::end(gpuprobe::nccl::kKernelPrefixes) && !StartsWith(rest, *prefix)) ++prefix;
  if (prefix == std::end(gpuprobe::nccl::kKernelPrefixes)) return kNone;
  rest.remove_prefix(prefix->size());
  KernelTraits traits{kAnyOp, kAnyDataType, *prefix == kDeviceKernel};
  const std::string_view op = NextToken(&rest);
  for (const OpToken& known : kOpTokens) {
    if (known.token != op || op.empty()) continue;
    traits.ops = known.ops;
    break;
  }
  while (!rest.empty()) {
    const std::string_view token = NextToken(&rest);
    for (const TypeToken& known : kTypeTokens) {
      if (known.token != token) continue;
      traits.datatypes = known.datatypes;
      return traits;
    }
  }
  return traits;
}

}  // namespace gpuprobe::injector::nccl
