// The longest steps of a job, and who was late in them.
//
// Separate from LateSteps, which feeds it every step and looks at each rank over all of them: a few steps
// that take much longer than the others are worth listing by number whether or not one rank is at fault.
// Memory: kKept steps, and a distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"

namespace gpuprobe::model {

class LongSteps {
 public:
  static constexpr size_t kKept = 32;

  struct Step {
    uint64_t step = 0;      // as all ranks count
    uint64_t total_ns = 0;  // median over the ranks
    // Whether a rank was late (LateSteps): the one that was by most, and by how much.
    bool late = false;
    uint32_t process = 0;
    uint64_t late_by_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, step, total_ns, late, process, late_by_ns);
    }
  };

  void Add(const Step& step);
  // Longest first.
  const std::vector<Step>& longest() const { return longest_; }
  const Distribution& lengths_ns() const { return lengths_ns_; }

 private:
  static constexpr size_t kExactLimit = 256;

  std::vector<Step> longest_;
  Distribution lengths_ns_{kExactLimit};

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, longest_, lengths_ns_);
    archive.Require(longest_.size() <= kKept);
  }
};

}  // namespace gpuprobe::model
