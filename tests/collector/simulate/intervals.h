// Sets of points in time as sorted, disjoint, half-open intervals: the algebra behind the truth of a
// simulation.
//
// Deliberately independent of collector/model/statistics/interval_union.h: the truth must not share code with
// what it checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuprobe::simulate {

class Intervals {
 public:
  Intervals() = default;
  // In any order, overlapping as they like.
  explicit Intervals(std::vector<std::pair<int64_t, int64_t>> parts) {
    std::sort(parts.begin(), parts.end());
    for (const auto& [start, end] : parts) {
      if (end <= start) continue;
      if (!parts_.empty() && start <= parts_.back().second) {
        parts_.back().second = std::max(parts_.back().second, end);
      } else {
        parts_.emplace_back(start, end);
      }
    }
  }

  int64_t Length() const {
    int64_t length = 0;
    for (const auto& [start, end] : parts_) length += end - start;
    return length;
  }
  Intervals Union(const Intervals& other) const {
    std::vector<std::pair<int64_t, int64_t>> all = parts_;
    all.insert(all.end(), other.parts_.begin(), other.parts_.end());
    return Intervals(std::move(all));
  }
  Intervals Within(const Intervals& other) const {
    std::vector<std::pair<int64_t, int64_t>> common;
    size_t i = 0;
    size_t j = 0;
    while (i < parts_.size() && j < other.parts_.size()) {
      common.emplace_back(std::max(parts_[i].first, other.parts_[j].first),
                          std::min(parts_[i].second, other.parts_[j].second));
      (parts_[i].second < other.parts_[j].second ? i : j)++;
    }
    return Intervals(std::move(common));
  }
  Intervals Without(const Intervals& other) const {
    std::vector<std::pair<int64_t, int64_t>> rest;
    size_t j = 0;
    for (auto [start, end] : parts_) {
      while (j < other.parts_.size() && other.parts_[j].second <= start) ++j;
      for (size_t k = j; k < other.parts_.size() && other.parts_[k].first < end; ++k) {
        rest.emplace_back(start, other.parts_[k].first);
        start = std::max(start, other.parts_[k].second);
      }
      rest.emplace_back(start, end);
    }
    return Intervals(std::move(rest));
  }
  const std::vector<std::pair<int64_t, int64_t>>& parts() const { return parts_; }

 private:
  std::vector<std::pair<int64_t, int64_t>> parts_;
};

}  // namespace gpuprobe::simulate
