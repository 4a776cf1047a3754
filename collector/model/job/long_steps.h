// The longest steps of a job, and who was late in them.
//
// LateSteps feeds it every step. A few steps that take much longer than the others are listed by number,
// whether or not one rank is at fault. Memory: kKept steps, and a distribution for each part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"

namespace gpuprobe::model {

class LongSteps {
 public:
  static constexpr size_t kKept = 32;

  // How the rank that determines the step's length spent its time: the one that needed most besides waiting
  // for the others.
  enum Part : uint8_t {
    kCompute,
    kExposedComm,
    kCopy,
    kHostBound,
    kInput,
    kSync,
    kMemory,
    kPause,
    kAfterCopy,
    kParts
  };
  using Parts = std::array<uint64_t, kParts>;

  struct Step {
    uint64_t step = 0;      // as all ranks count
    uint64_t total_ns = 0;  // median over the ranks
    Parts parts{};          // ns; kAfterCopy is part of kPause
    uint32_t paced_by = 0;  // the member whose parts these are
    uint64_t paced_ns = 0;  // what it needed besides waiting
    // Whether a rank was late (LateSteps); the latest one, and by how much.
    bool late = false;
    uint32_t member = 0;
    uint64_t late_by_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, step, total_ns, parts, paced_by, paced_ns, late, member, late_by_ns);
    }
  };

  LongSteps() { parts_ns_.fill(Distribution(kExactLimit)); }
  void Add(const Step& step);
  // Longest first.
  const std::vector<Step>& longest() const { return longest_; }
  const Distribution& lengths_ns() const { return lengths_ns_; }
  // Of each part, over all steps.
  const std::array<Distribution, kParts>& parts_ns() const { return parts_ns_; }

 private:
  static constexpr size_t kExactLimit = 256;

  std::vector<Step> longest_;
  Distribution lengths_ns_{kExactLimit};
  std::array<Distribution, kParts> parts_ns_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, longest_, lengths_ns_, parts_ns_);
    archive.Require(longest_.size() <= kKept);
  }
};

}  // namespace gpuprobe::model
