// The grid and the block with which a kernel was launched.
#pragma once

#include <array>
#include <cstdint>

namespace gpuprobe::model {

struct LaunchGeometry {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  friend bool operator==(const LaunchGeometry&, const LaunchGeometry&) = default;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

}  // namespace gpuprobe::model
