#include "collector/page/packed_cells.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/escaping.h"

namespace gpuprobe::page {
namespace {

constexpr uint32_t kMantissaBits = 11;
constexpr uint32_t kMantissas = 1U << kMantissaBits;
constexpr uint32_t kExponents = 32;

}  // namespace

uint16_t PackCell(double ns) {
  if (!(ns > 0)) return 0;
  if (ns < kMantissas) return static_cast<uint16_t>(std::min(std::lround(ns), long{kMantissas}));
  int exponent = 0;
  const double fraction = std::frexp(ns, &exponent);  // in [0.5, 1)
  auto mantissa = static_cast<uint32_t>(std::lround(fraction * 2 * kMantissas));
  auto e = static_cast<uint32_t>(exponent) - kMantissaBits;
  if (mantissa == 2 * kMantissas) {
    mantissa = kMantissas;
    ++e;
  }
  if (e >= kExponents) return kNoCell - 1;
  const auto cell = static_cast<uint16_t>(e << kMantissaBits | (mantissa - kMantissas));
  return cell == kNoCell ? kNoCell - 1 : cell;
}

double UnpackCell(uint16_t cell) {
  const uint32_t e = cell >> kMantissaBits;
  const uint32_t mantissa = cell & (kMantissas - 1);
  return e == 0 ? mantissa : std::ldexp(kMantissas + mantissa, static_cast<int>(e) - 1);
}

std::string PackCells(std::span<const uint16_t> cells) {
  std::string bytes;
  bytes.reserve(cells.size() * 2);
  for (const uint16_t cell : cells) {
    bytes.push_back(static_cast<char>(cell & 0xff));
    bytes.push_back(static_cast<char>(cell >> 8));
  }
  return absl::Base64Escape(bytes);
}

}  // namespace gpuprobe::page
