// Calls and time of each kernel and collective in columns of consecutive steps: what the page shows of some
// steps, and how a kernel's time goes over the run.
//
// A column holds 2^shift() steps, counted from the first step. When kernels x columns exceed kMostCells,
// neighbouring columns are joined, as StepColumns does. Holds complete steps; the first ones may be warm-up
// that was not known as such. Memory: kMostCells cells. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

class WorkColumns {
 public:
  static constexpr size_t kMostCells = 8192;
  static constexpr size_t kMostColumns = 1024;
  static constexpr size_t kMostRows = 1024;  // later kernels are left out

  struct Cell {
    uint32_t calls = 0;
    uint64_t time_ns = 0;  // sum

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, time_ns);
    }
  };

  using Phases = std::array<Cell, kStepPhases>;

  // A complete step's own operations, and their phases. `step`: its index; one before the first counts as the
  // first.
  void AddStep(std::span<const StepOperation> own, std::span<const StepPhase> phases, uint64_t step);

  uint64_t first() const { return first_; }
  uint32_t shift() const { return shift_; }
  // By column: its steps.
  const std::vector<uint32_t>& steps() const { return steps_; }
  // By column, as far as there are any: of a kernel with this coarse token, or of collectives with this fine
  // token.
  std::span<const Cell> Of(uint32_t token) const;
  // The same over all columns, by phase; nullptr: none.
  const Phases* PhasesOf(uint32_t token) const;

 private:
  static constexpr uint32_t kNoRow = 0;  // rows count from 1
  struct Row {
    std::vector<Cell> cells;
    Phases phases{};

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, cells, phases);
    }
  };
  // Joins columns until there is room for one at `place` steps after the first.
  void MakeRoom(uint64_t place);
  void Halve();

  uint64_t first_ = 0;
  uint32_t shift_ = 0;
  std::vector<uint32_t> steps_;
  std::vector<Row> rows_;
  std::vector<uint32_t> row_of_;  // by token

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr uint32_t kMostShift = 63;
    archive.Members(this, first_, shift_, steps_, rows_, row_of_);
    if constexpr (Archive::kReads) {
      archive.Require(shift_ <= kMostShift && steps_.size() <= kMostColumns && rows_.size() <= kMostRows);
      for (const Row& row : rows_) archive.Require(row.cells.size() <= steps_.size());
      for (const uint32_t row : row_of_) archive.Require(row <= rows_.size());
      if (!archive.ok()) *this = WorkColumns();
    }
  }
};

}  // namespace gpuprobe::model
