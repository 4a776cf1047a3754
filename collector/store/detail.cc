#include "collector/store/detail.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "collector/store/run_source.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {
namespace {

using Wanted = absl::flat_hash_set<const model::ProcessModel*>;

// Of one log, for which somebody may want it.
void LoadFrom(std::span<const Segment> log, const Wanted& wanted, model::JobModel& job) {
  model::ProcessModel* process = nullptr;
  std::vector<v1::Batch> since;  // its last whole state
  for (const Segment& segment : log) {
    const absl::StatusOr<RunSource> source = OpenSource(segment);
    if (!source.ok()) continue;
    v1::Frame frame;
    std::string_view raw;
    while (source->reader->Next(frame, raw)) {
      if (frame.has_hello()) process = job.Find(frame.hello());
      if (!wanted.contains(process)) return;
      if (!frame.has_batch()) continue;
      const bool whole = !frame.batch().process_state().whole().empty();
      if (whole) since.clear();
      if (whole || !since.empty()) since.push_back(std::move(*frame.mutable_batch()));
    }
  }
  if (process != nullptr) job.LoadDetail(*process, since);
}

}  // namespace

void LoadDetail(const RunFiles& files, model::JobModel& job) {
  if (!job.LeavesStatesOut()) return;
  Wanted wanted;
  for (const model::ProcessModel* process : job.WorthDetail()) wanted.insert(process);
  const std::span<const Segment> all = files.segments;
  for (size_t first = 0; first < all.size();) {
    size_t end = first + 1;
    while (end < all.size() && all[end].log == all[first].log) ++end;
    LoadFrom(all.subspan(first, end - first), wanted, job);
    first = end;
  }
}

}  // namespace gpuprobe::store
