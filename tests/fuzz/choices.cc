#include "tests/fuzz/choices.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpuprobe::fuzz {
namespace {

// Names on which the analysis decides something, and some that a screen must survive.
constexpr std::string_view kTexts[] = {
    "",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Send",
    "Recv",
    "float32",
    "bfloat16",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "_Z12LinearForwardPKfS0_Pfi",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)",
    "multi_tensor_apply_kernel",
    "step",
    "forward",
    "backward",
    "optimizer",
    "input",
    "ProfilerStep#3",
    "pt_autograd_0",
    "python3",
    "\x1b]0;title\x07",
    "two\nlines",
    "<b>bold",
    "../../etc",
    "\xc3\x28",
};

constexpr uint64_t kLimits[] = {0,
                                1,
                                INT32_MAX,
                                uint64_t{1} << 31,
                                UINT32_MAX,
                                uint64_t{1} << 32,
                                INT64_MAX,
                                uint64_t{1} << 63,
                                UINT64_MAX,
                                UINT64_MAX - 1,
                                1'700'000'000'000'000'000,
                                65535,
                                uint64_t{1} << 22};

}  // namespace

uint8_t Choices::Byte() {
  if (rest_.empty()) return 0;
  const auto byte = static_cast<uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return byte;
}

uint64_t Choices::Fixed(int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | Byte();
  return value;
}

uint32_t Choices::Below(uint32_t count) {
  return count <= 256 ? Byte() % count : static_cast<uint32_t>(Fixed(2)) % count;
}

uint64_t Choices::Number() {
  const uint8_t kind = Byte();
  if (kind < 160) return kind & 7;
  if (kind < 190) return Byte();
  if (kind < 215) return Fixed(2);
  if (kind < 230) return Fixed(2) * 1000;
  if (kind < 240) return Fixed(4);
  if (kind < 244) return Fixed(8);
  return kLimits[Below(std::size(kLimits))];
}

std::string Choices::Text() {
  const uint32_t which = Below(std::size(kTexts) + 2);
  if (which < std::size(kTexts)) return std::string(kTexts[which]);
  const size_t wanted = Below(40);
  const size_t size = std::min(rest_.size(), wanted);
  std::string text(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return text;
}

std::string_view Choices::Rest() { return std::exchange(rest_, {}); }

}  // namespace gpuprobe::fuzz
