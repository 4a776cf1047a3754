#include "collector/tables/placed_work.h"

#include <algorithm>
#include <tuple>

namespace gpuprobe::tables {
namespace {

bool IsBefore(const model::PlacedOperation& a, const model::PlacedOperation& b) {
  return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
}

}  // namespace

PlacedWork::PlacedWork(const model::JobModel& job) {
  for (const model::Member& member : job.members()) {
    const model::ProcessModel& process = *member.process;
    std::vector<model::PlacedOperation>& all =
        processes_[model::JobModel::KeyOf(process.hello())].operations_;
    const model::StepAlignment& alignment = job.comparison().alignment();
    for (model::PlacedOperation placed : member.steps().placed()) {
      placed.end_ns -= process.SetBackAt(placed.end_ns);
      placed.start_ns = process.Realtime(placed.start_ns);
      placed.step += static_cast<uint64_t>(alignment.Behind(member.number, placed.step));
      all.push_back(placed);
    }
  }
  for (auto& [key, process] : processes_)
    std::sort(process.operations_.begin(), process.operations_.end(), IsBefore);
}

const PlacedWork::Process* PlacedWork::Of(const v1::Hello& hello) const {
  const auto found = processes_.find(model::JobModel::KeyOf(hello));
  return found == processes_.end() ? nullptr : &found->second;
}

std::optional<PlacedWork::Place> PlacedWork::Process::Find(uint64_t start_ns, uint64_t end_ns) const {
  const model::PlacedOperation wanted{.start_ns = start_ns, .end_ns = end_ns};
  auto found = std::lower_bound(operations_.begin(), operations_.end(), wanted, IsBefore);
  // A call of several kernels ends with the last one.
  if (found == operations_.end() || found->start_ns != start_ns) {
    if (found == operations_.begin() || std::prev(found)->start_ns != start_ns) return std::nullopt;
    --found;
  }
  return Place{found->step, found->phase};
}

}  // namespace gpuprobe::tables
