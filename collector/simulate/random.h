// Seeded noise for simulated ranks. Every rank has a stream of its own, so that its random numbers do not
// depend on the order in which ranks are simulated.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuprobe::simulate {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, 1)
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // About normal, mean 0, deviation 1, within +-3.5: the sum of four uniform numbers from one draw.
  double Normal() {
    const uint64_t bits = Next();
    const auto sum = static_cast<double>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) +
                                         (bits >> 48));
    return (sum / 65536.0 - 2.0) * 1.7320508075688772;
  }
  // `duration_ns` with a relative deviation; never less than half of it.
  int64_t Noisy(int64_t duration_ns, double relative) {
    if (relative <= 0) return duration_ns;
    return static_cast<int64_t>(static_cast<double>(duration_ns) * std::max(0.5, 1 + relative * Normal()));
  }

 private:
  uint64_t state_;
};

}  // namespace gpuprobe::simulate
