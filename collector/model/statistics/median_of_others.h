// The median of all values but one, for each of them in logarithmic time.
//
// Example: MedianOfOthers({1, 2, 9})(9) is 1.5, what the other two have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace gpuprobe::model {

template <typename Value>
class MedianOfOthers {
 public:
  explicit MedianOfOthers(std::vector<Value> values) : sorted_(std::move(values)) {
    std::sort(sorted_.begin(), sorted_.end());
  }
  // REQUIRES: `own` is one of at least two values.
  Value operator()(Value own) const {
    const auto place =
        static_cast<size_t>(std::lower_bound(sorted_.begin(), sorted_.end(), own) - sorted_.begin());
    const auto other = [&](size_t i) { return sorted_[i < place ? i : i + 1]; };
    const size_t others = sorted_.size() - 1;
    if (others % 2 == 1) return other(others / 2);
    return (other(others / 2 - 1) + other(others / 2)) / 2;
  }

 private:
  std::vector<Value> sorted_;
};

}  // namespace gpuprobe::model
