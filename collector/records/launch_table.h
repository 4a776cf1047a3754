// Launches whose work has not been seen yet, by correlation id; the oldest make room for new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace gpuprobe::model {

class LaunchTable {
 public:
  struct Launch {
    uint64_t time_ns = 0;
    uint64_t correlation = 0;
    uint32_t thread = 0;
    uint32_t graph = 0;    // as Launches.graph
    uint32_t owner = 0;    // as Launches.owner
    bool matched = false;  // work of it was seen
  };

  explicit LaunchTable(size_t size) : size_(size) {}

  // Calls give_up(launch) for a launch that makes room.
  template <typename GiveUp>
  void Add(const Launch& launch, GiveUp&& give_up) {
    if (!launches_.insert_or_assign(launch.correlation, launch).second) return;
    order_.push_back(launch.correlation);
    if (order_.size() > size_) TakeOldest(give_up);
  }
  // nullptr: not seen, or too long ago.
  Launch* Find(uint64_t correlation) {
    const auto found = launches_.find(correlation);
    return found == launches_.end() ? nullptr : &found->second;
  }
  // Gives up all of them.
  template <typename GiveUp>
  void Clear(GiveUp&& give_up) {
    while (!order_.empty()) TakeOldest(give_up);
  }

 private:
  template <typename GiveUp>
  void TakeOldest(GiveUp&& give_up) {
    const auto oldest = launches_.find(order_.front());
    order_.pop_front();
    if (oldest == launches_.end()) return;
    give_up(std::as_const(oldest->second));
    launches_.erase(oldest);
  }

  size_t size_;
  absl::flat_hash_map<uint64_t, Launch> launches_;
  std::deque<uint64_t> order_;
};

}  // namespace gpuprobe::model
