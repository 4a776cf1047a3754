// The grid and the block with which a kernel was launched.
#pragma once

#include <array>
#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

struct LaunchGeometry {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  friend bool operator==(const LaunchGeometry&, const LaunchGeometry&) = default;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, grid, block);
  }
};

}  // namespace gpuprobe::model
