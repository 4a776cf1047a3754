#include "collector/store/run_resume.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::store {
namespace {

// The remains of a collector that was killed while writing.
bool IsUnfinishedChunk(const Damage& damage) {
  return damage.what == "cut off" || damage.what == "empty file";
}

// Removes files without a complete first chunk: they are not logs.
void RemoveEmpty(const Directory& directory, const RunFiles& files, std::vector<std::string>& notes) {
  for (const Segment& segment : files.segments) {
    const absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(segment.path);
    if (!file.ok()) continue;
    v1::Frame frame;
    std::string_view raw;
    RunLogReader reader(segment.name, **file);
    const bool holds = reader.Next(frame, raw);
    if (holds || !reader.damage().has_value() || !IsUnfinishedChunk(*reader.damage())) continue;
    directory.Remove(segment.name);
    notes.push_back(absl::StrCat(segment.name, " held nothing yet"));
  }
}

// True when every file of this generation ends with a whole chunk.
bool CutTails(const Directory& directory, const RunFiles& files, uint32_t generation,
              const std::vector<Damage>& damages, std::vector<std::string>& notes) {
  bool whole = true;
  for (const Segment& segment : files.segments) {
    if (segment.generation != generation) continue;
    const std::string& name = segment.name;
    const auto damage =
        std::find_if(damages.begin(), damages.end(), [&](const Damage& d) { return d.file == name; });
    if (damage == damages.end()) continue;
    const uint64_t size = directory.FileBytes(name);
    if (!IsUnfinishedChunk(*damage) || !directory.Truncate(name, damage->byte).ok()) {
      whole = false;
      continue;
    }
    notes.push_back(
        absl::StrCat(name, " was cut by ", size - damage->byte, " bytes to its last whole chunk"));
  }
  return whole;
}

std::vector<uint64_t> StartsOf(const std::map<uint32_t, uint64_t>& began_ns, uint32_t generations,
                               uint64_t now_ns) {
  std::vector<uint64_t> starts;
  for (uint32_t generation = 1; generation <= generations; ++generation) {
    const auto known = began_ns.lower_bound(generation);
    starts.push_back(known == began_ns.end() || known->second == 0 ? now_ns : known->second);
  }
  return starts;
}

}  // namespace

absl::StatusOr<Resumed> ResumeRun(const Directory& directory, model::JobModel& job, uint64_t realtime_ns) {
  Resumed resumed;
  RunRecording::Unfinished& run = resumed.recording;
  run.starts_ns = {realtime_ns};
  if (const absl::StatusOr<RunFiles> found = ListRun(directory); found.ok())
    RemoveEmpty(directory, *found, resumed.notes);
  const absl::StatusOr<RunFiles> files = ListRun(directory);
  if (!files.ok() || files->segments.empty()) return resumed;  // nothing was written yet: it begins anew
  const absl::StatusOr<Replayed> replayed = ReplaySoFar(directory.path(), job);
  if (!replayed.ok()) return replayed.status();

  uint32_t newest = 1;
  for (const Segment& segment : files->segments) newest = std::max(newest, segment.generation);
  run.generation = newest;
  if (!CutTails(directory, *files, newest, replayed->damages, resumed.notes)) ++run.generation;
  if (!files->totals.empty()) run.generation = std::max(run.generation, files->totals.rbegin()->first);
  run.first_generation = files->FirstGeneration();
  run.starts_ns = StartsOf(replayed->began_ns, run.generation, realtime_ns);

  std::map<std::string, bool> names;  // whether the log has a file of the generation that goes on
  for (const Segment& segment : files->segments) {
    bool& in_generation = names[segment.log];
    if (segment.generation != run.generation) continue;
    in_generation = true;
    run.generation_bytes += directory.FileBytes(segment.name);
  }
  if (!files->totals.empty())
    run.totals_bytes = directory.FileBytes(TotalsName(files->totals.rbegin()->first));
  for (const auto& [process, name] : replayed->logs) {
    if (!names.contains(name)) continue;  // another process wrote it, too: this one gets a log of its own
    run.logs.push_back(
        {.name = name, .in_generation = names[name], .last_sequence = process->last_sequence()});
    resumed.processes.push_back(process);
    names.erase(name);
  }
  // Logs with a damaged beginning belong to no known process; their names are taken.
  for (const auto& [name, in_generation] : names) {
    run.logs.push_back({.name = name, .in_generation = in_generation, .last_sequence = 0});
    resumed.processes.push_back(nullptr);
  }
  return resumed;
}

}  // namespace gpuprobe::store
