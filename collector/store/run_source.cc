#include "collector/store/run_source.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {
namespace {

// One frame of `source` into the model, by way of `frame`. A batch that contradicts the schema ends the
// source as damage does.
void Step(RunSource& source, model::JobModel& job, v1::Frame& frame, Replayed& replayed, BatchWatcher watch) {
  std::vector<Damage>& damages = replayed.damages;
  std::string_view raw;
  source.reader->PassOver(job.LeavesStatesOut());
  if (!source.reader->Next(frame, raw)) {
    source.done = true;
    if (source.reader->damage().has_value()) damages.push_back(*source.reader->damage());
    return;
  }
  if (frame.has_hello()) {
    source.process = &job.Join(frame.hello());
    replayed.logs[source.process] = source.log;
  } else if (frame.has_batch() && source.process != nullptr) {
    if (absl::Status s = source.process->Apply(frame.batch()); !s.ok()) {
      source.done = source.contradicts = true;
      damages.push_back(source.reader->DamageHere(std::string(s.message())));
      return;
    }
    watch(*source.process, frame.batch());
  } else if (frame.has_bye() && source.process != nullptr) {
    source.process->ApplyBye(frame.bye());
  } else if (frame.has_process_observation() && source.process != nullptr) {
    source.process->ApplyObservation(frame.process_observation());
  } else if (frame.has_device_observation() && source.process != nullptr) {
    source.process->ApplyDevice(frame.device_observation());
  } else if (frame.has_connection() && source.process != nullptr) {
    source.process->ApplyConnection(frame.connection());
  } else if (frame.has_hang_verdict()) {
    job.ApplyVerdict(frame.hang_verdict());
  } else if (frame.has_detail_raise()) {
    job.ApplyRaise(frame.detail_raise());
  }
}

}  // namespace

absl::StatusOr<RunSource> OpenSource(const Segment& segment) {
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(segment.path);
  if (!file.ok()) return file.status();
  RunSource source;
  source.file = *std::move(file);
  source.log = segment.log;
  source.reader = std::make_unique<RunLogReader>(segment.name, *source.file);
  return source;
}

bool Interleave(const std::vector<RunSource*>& sources, model::JobModel& job, Replayed& replayed,
                BatchWatcher watch, SourceCheck awaits, bool ranks_come) {
  uint64_t most_ns = ranks_come ? 0 : UINT64_MAX;
  // By time, then in their order.
  using Next = std::pair<uint64_t, size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  const auto enqueue = [&](size_t i) {
    if (!sources[i]->done) queue.emplace(sources[i]->reader->last_ns(), i);
  };
  for (size_t i = 0; i < sources.size(); ++i) enqueue(i);
  v1::Frame frame;
  while (!queue.empty()) {
    const auto [ns, earliest] = queue.top();
    if (ns > most_ns && job.ManyCallsWait(ranks_come)) return false;
    queue.pop();
    RunSource& source = *sources[earliest];
    Step(source, job, frame, replayed, watch);
    source.reader->Rest();  // there may be ten thousand
    if (source.done && awaits(earliest)) most_ns = std::min(most_ns, source.reader->last_ns());
    enqueue(earliest);
  }
  return true;
}

}  // namespace gpuprobe::store
