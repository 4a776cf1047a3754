// Cuts a process's operations into steps at their anchor: learns it from the history (step_finder.h), and
// then applies it as operations come.
//
// Where records were lost, the anchors of some steps are missing: such steps are told apart by their usual
// number of operations, and by what steps begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/open_operations.h"
#include "collector/model/steps/step_finder.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

class AnchorCutter {
 public:
  static constexpr size_t kFirstSearch = 128;  // operations after which steps are first looked for
  static constexpr size_t kMaxSearch = 65536;  // beyond, the older half of the history is given up

  // The operations, and what to do with them. Both functions may call Forgot.
  struct Work {
    const OpenOperations& open;
    bool lossy = false;   // records were lost
    bool marked = false;  // the user's marker is on some operations; nothing else counts
    absl::FunctionRef<void(uint64_t begin, uint64_t end)> cut;
    absl::FunctionRef<void(uint64_t position)> forget_before;
  };

  // Steps begin with the operations that have the marker's role.
  void BeginAtMarker();
  bool knows_anchor() const { return definition_.has_value(); }
  // REQUIRES: it knows the anchor.
  const StepDefinition& definition() const { return *definition_; }
  // The usual number of operations of a step; 0: not known.
  uint64_t usual_operations() const { return definition_.has_value() ? definition_->operations : 0; }
  StepSource source() const { return definition_.has_value() ? definition_->source : StepSource::kNone; }
  // Whether there is enough history for another search.
  bool WantsSearch(size_t operations) const { return operations >= next_search_; }
  // The share of steps that are like the usual one; 1 where none is compared.
  double regular() const;

  // Looks for the anchor. `at_end`: no more will come. False: it is not known yet.
  bool Search(const Work& work, bool at_end);
  // Applies this anchor from `position` on.
  void Adopt(const StepDefinition& definition, uint64_t position);
  // Applies it to the operations not scanned yet; to `all`, or as far as clusters are surely over.
  void Scan(const Work& work, bool all);
  // Operations before this position were forgotten.
  void Forgot(uint64_t position);
  // Whether its positions are among these operations; of a loaded state.
  bool IsWithin(const OpenOperations& open) const;

 private:
  // The step's anchors ended before `position`: where, up to `known`, the next step begins.
  uint64_t BeginAfter(const Work& work, uint64_t position, uint64_t known) const;
  // A marker that begins steps may be at `position`.
  void BeginAt(const Work& work, uint64_t position);
  // Everything up to `end` and since the last step is one, with what is between steps before it; or several,
  // whose anchors were lost.
  void EndSegment(const Work& work, uint64_t end);
  void EndStep(const Work& work, uint64_t segment, uint64_t end);
  // Ends of the steps up to `end` if there are several whose anchors were lost; empty if it is one.
  std::vector<uint64_t> EndsOfLost(const Work& work, uint64_t segment, uint64_t end) const;
  uint64_t BeginOfStep(const Work& work, uint64_t segment, uint64_t end) const;
  // Where the first step begins: with the longest stretch of what the next one begins with; `end`: unknown.
  uint64_t BeginLikeNext(const Work& work, uint64_t segment, uint64_t end) const;
  // Where a step that is not the usual one begins: with what steps begin with, if that leaves about the usual
  // length.
  uint64_t BeginOfUnusual(const Work& work, uint64_t segment, uint64_t end) const;
  bool IsUsual(uint64_t begin, uint64_t end) const;
  // A step between two anchors that were seen is shorter than the supposed usual one: there were several in
  // it.
  void ShortenUsual(const Work& work, uint64_t operations);

  std::optional<StepDefinition> definition_;
  size_t next_search_ = kFirstSearch;
  uint64_t scanned_ = 0;      // position
  uint64_t segment_ = 0;      // position after the last step
  uint64_t cluster_end_ = 0;  // position after the last anchor since then, 0 if there was none
  uint64_t parted_ = 0;       // operations after it that part anchors
  uint64_t compared_ = 0;     // steps that were compared with the usual one
  uint64_t usual_ = 0;        // those that are like it
  bool begun_ = false;        // of a marker that begins steps: the first one was seen
  bool cut_ = false;          // a step was cut; before the first one there is what initialises

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, definition_, next_search_, scanned_, segment_, cluster_end_, parted_, compared_,
                    usual_, begun_, cut_);
    archive.Require(next_search_ >= kFirstSearch && next_search_ <= kMaxSearch);
  }
};

}  // namespace gpuprobe::model
