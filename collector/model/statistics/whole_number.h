// A double as a whole number: rounded towards zero, and held within the type where a plain conversion would
// be undefined. Sums of a peer's values can be anything.
//
// Example: WholeNumber(3.7) is 3, WholeNumber(-1) and WholeNumber(NaN) are 0, WholeNumber(1e30) is
// UINT64_MAX.
#pragma once

#include <cstdint>

namespace gpuprobe::model {

inline uint64_t WholeNumber(double value) {
  constexpr double kEnd = 18446744073709551616.0;  // 2^64
  if (!(value > 0)) return 0;
  return value < kEnd ? static_cast<uint64_t>(value) : UINT64_MAX;
}

// The same with a sign.
inline int64_t SignedWholeNumber(double value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(value == value)) return 0;
  if (value >= kEnd) return INT64_MAX;
  return value >= -kEnd ? static_cast<int64_t>(value) : INT64_MIN;
}

}  // namespace gpuprobe::model
