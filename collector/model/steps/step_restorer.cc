#include "collector/model/steps/step_restorer.h"

#include <algorithm>
#include <span>
#include <vector>

namespace gpuprobe::model {

void StepRestorer::Learn(const OpenOperations& open, const PendingStep* before, const PendingStep& last,
                         const Known& known) {
  const uint64_t own = last.end - last.begin;
  const bool usual = known.usual_operations != 0 ? own == known.usual_operations
                                                 : last.lost == 0 || !usual_.known() || own == usual_.size();
  if (!usual && usual_.known()) return;
  uint64_t start_ns =
      before == nullptr ? std::max(open.forgotten_until_ns(), last.earlier_end_ns) : last.earlier_end_ns;
  for (uint64_t i = before == nullptr ? open.Begin() : before->begin; i < last.begin; ++i)
    start_ns = std::max(start_ns, open.At(i).end_ns);
  uint64_t end_ns = start_ns;
  for (uint64_t i = last.begin; i < last.end; ++i) end_ns = std::max(end_ns, open.At(i).end_ns);
  if (start_ns == 0) return;
  const std::span<const StepOperation> operations = open.Between(last.begin, last.end);
  const bool begin_known = before == nullptr || (before->lost == 0 && before->end == last.begin);
  if (last.lost == 0 && begin_known) {
    usual_.Learn(operations, start_ns, end_ns);
    return;
  }
  // In the usual step, the last launch ends last.
  const auto seen = [](const StepOperation& o) { return o.work != WorkClass::kUnseen; };
  const bool begin_seen =
      last.begin > open.Begin() ? seen(open.At(last.begin - 1)) : known.begin_error_ns == 0;
  if (usual && begin_seen && (before == nullptr || before->end_error_ns == 0) && seen(operations.back()))
    usual_.LearnPart(operations, start_ns, end_ns);
}

void StepRestorer::Restore(OpenOperations& open, std::deque<PendingStep>& pending, const Known& known,
                           bool all) {
  Learn(open, pending.size() < 2 ? nullptr : &pending[pending.size() - 2], pending.back(), known);
  const bool wanted =
      std::any_of(pending.begin(), pending.end(), [](const PendingStep& each) { return each.left > 0; });
  if (!wanted || !usual_.known()) return;
  std::vector<RestoredStep> steps;
  steps.reserve(pending.size());
  for (const PendingStep& each : pending) {
    steps.push_back({.begin = static_cast<size_t>(each.begin - open.Begin()),
                     .end = static_cast<size_t>(each.end - open.Begin()),
                     .left = each.left,
                     .end_error_ns = each.end_error_ns});
  }
  const uint64_t known_until_ns = std::max(open.forgotten_until_ns(), pending.front().earlier_end_ns);
  const Summary length = known.length_ns.Summarize();
  const double variation = length.mean > 0 ? length.std / length.mean : 0;
  usual_.Restore(open.all(), steps, known_until_ns, variation, all);
  for (size_t i = 0; i < steps.size(); ++i) {
    pending[i].left = steps[i].left;
    pending[i].end_error_ns = steps[i].end_error_ns;
  }
}

}  // namespace gpuprobe::model
