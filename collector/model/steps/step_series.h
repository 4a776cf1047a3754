// Every step of a process over the whole run, as columns of consecutive steps in bounded memory: what the
// charts of report.html draw.
//
// A column holds 2^shift() steps whose numbers follow each other, counted from the first step. When a step
// does not fit in kMost columns, neighbouring columns are joined and columns become twice as long.
//
// Example: with kMost = 4, steps 10 to 13 have a column each. Step 14 makes the columns {10,11} {12,13}
// {14,15}.
//
// Unlike StepBlocks, which holds what statistics may use, this contains every step: the warm-up and those in
// which records were lost, too. Not thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// `Column` has Join(const Column& next).
template <typename Column, size_t kMostColumns = 1024>
class StepColumns {
 public:
  static constexpr size_t kMost = kMostColumns;

  // The column of this step. A step before the first one counts as the first one.
  Column& At(uint64_t step) {
    if (columns_.empty()) first_ = step;
    const uint64_t place = step > first_ ? step - first_ : 0;
    while ((place >> shift_) >= kMost) Halve();
    const auto index = static_cast<size_t>(place >> shift_);
    if (columns_.size() <= index) columns_.resize(index + 1);
    return columns_[index];
  }

  uint64_t first() const { return first_; }
  // A column holds 2^shift() steps.
  uint32_t shift() const { return shift_; }
  const std::vector<Column>& columns() const { return columns_; }

 private:
  void Halve() {
    const size_t joined = (columns_.size() + 1) / 2;
    for (size_t i = 0; i < joined; ++i) {
      Column column = columns_[2 * i];
      if (2 * i + 1 < columns_.size()) column.Join(columns_[2 * i + 1]);
      columns_[i] = column;
    }
    columns_.resize(joined);
    ++shift_;
  }

  uint64_t first_ = 0;
  uint32_t shift_ = 0;
  std::vector<Column> columns_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr uint32_t kMostShift = 63;
    archive.Members(this, first_, shift_, columns_);
    archive.Require(shift_ <= kMostShift && columns_.size() <= kMost);
    if (!archive.ok()) *this = StepColumns();
  }
};

// Sums over the steps of a column, and its longest step.
struct StepColumn {
  uint64_t steps = 0;
  uint64_t incomplete = 0;  // steps in which records were lost
  uint64_t total_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t exposed_comm_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t idle_ns = 0;
  uint64_t start_ns = 0;  // of its first step
  uint64_t longest_ns = 0;
  uint64_t longest_step = 0;
  uint64_t longest_start_ns = 0;

  void Add(const StepRecord& step) {
    Join({.steps = 1,
          .incomplete = step.incomplete ? uint64_t{1} : 0,
          .total_ns = step.total_ns(),
          .compute_ns = step.compute_ns,
          .exposed_comm_ns = step.exposed_comm_ns,
          .copy_ns = step.copy_ns,
          .idle_ns = step.idle_ns,
          .start_ns = step.start_ns,
          .longest_ns = step.total_ns(),
          .longest_step = step.index,
          .longest_start_ns = step.start_ns});
  }
  void Join(const StepColumn& next) {
    if (steps == 0) start_ns = next.start_ns;
    steps += next.steps;
    incomplete += next.incomplete;
    total_ns += next.total_ns;
    compute_ns += next.compute_ns;
    exposed_comm_ns += next.exposed_comm_ns;
    copy_ns += next.copy_ns;
    idle_ns += next.idle_ns;
    if (next.longest_ns <= longest_ns) return;
    longest_ns = next.longest_ns;
    longest_step = next.longest_step;
    longest_start_ns = next.longest_start_ns;
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, steps, incomplete, total_ns, compute_ns, exposed_comm_ns, copy_ns, idle_ns,
                    start_ns, longest_ns, longest_step, longest_start_ns);
  }
};

// How long a rank made each other rank wait in the steps of a column.
struct CausedColumn {
  uint64_t caused_ns = 0;

  void Join(const CausedColumn& next) { caused_ns += next.caused_ns; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, caused_ns);
  }
};

using StepSeries = StepColumns<StepColumn>;
using CausedSeries = StepColumns<CausedColumn>;

}  // namespace gpuprobe::model
