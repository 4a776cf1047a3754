#include "collector/model/steps/work_columns.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

template <typename Value>
void JoinPairs(std::vector<Value>& values, auto join) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 2 == 0) {
      values[i / 2] = values[i];
    } else {
      join(values[i / 2], values[i]);
    }
  }
  values.resize((values.size() + 1) / 2);
}

}  // namespace

void WorkColumns::AddStep(std::span<const StepOperation> own, std::span<const StepPhase> phases,
                          uint64_t step) {
  if (steps_.empty()) first_ = step;
  const uint64_t place = step > first_ ? step - first_ : 0;
  MakeRoom(place);
  for (size_t i = 0; i < own.size(); ++i) {
    const StepOperation& o = own[i];
    const bool communicates = o.work == WorkClass::kCommunication;
    const uint32_t token = communicates ? o.token : o.coarse;
    if (token == 0 || (!communicates && o.work != WorkClass::kCompute)) continue;
    if (row_of_.size() <= token) row_of_.resize(size_t{token} + 1, kNoRow);
    uint32_t& row = row_of_[token];
    if (row == kNoRow) {
      if (rows_.size() == kMostRows) continue;
      rows_.emplace_back();
      row = static_cast<uint32_t>(rows_.size());
      MakeRoom(place);
    }
    std::vector<Cell>& cells = rows_[row - 1].cells;
    const auto column = static_cast<size_t>(place >> shift_);
    if (cells.size() <= column) cells.resize(column + 1);
    const StepPhase phase = i < phases.size() ? phases[i] : StepPhase::kOther;
    for (Cell* cell : {&cells[column], &rows_[row - 1].phases[static_cast<size_t>(phase)]}) {
      ++cell->calls;
      cell->time_ns += o.end_ns - o.start_ns;
    }
  }
  const auto column = static_cast<size_t>(place >> shift_);
  if (steps_.size() <= column) steps_.resize(column + 1);
  ++steps_[column];
}

std::span<const WorkColumns::Cell> WorkColumns::Of(uint32_t token) const {
  const uint32_t row = token < row_of_.size() ? row_of_[token] : kNoRow;
  return row == kNoRow ? std::span<const Cell>() : std::span<const Cell>(rows_[row - 1].cells);
}

const WorkColumns::Phases* WorkColumns::PhasesOf(uint32_t token) const {
  const uint32_t row = token < row_of_.size() ? row_of_[token] : kNoRow;
  return row == kNoRow ? nullptr : &rows_[row - 1].phases;
}

void WorkColumns::MakeRoom(uint64_t place) {
  const size_t most = std::min(kMostColumns, kMostCells / std::max<size_t>(rows_.size(), 1));
  while ((place >> shift_) >= most || steps_.size() > most) Halve();
}

void WorkColumns::Halve() {
  JoinPairs(steps_, [](uint32_t& into, uint32_t next) { into += next; });
  for (Row& row : rows_) {
    JoinPairs(row.cells, [](Cell& into, const Cell& next) {
      into.calls += next.calls;
      into.time_ns += next.time_ns;
    });
  }
  ++shift_;
}

}  // namespace gpuprobe::model
