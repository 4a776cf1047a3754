#include "collector/cli/record_rows.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_reader.h"
#include "collector/tables/record_lines.h"

namespace gpuprobe::cli {
namespace {

// Calls `visit` for every readable frame; the damage at the end, if any. A visitor's error ends the log as
// damage.
template <typename Visit>
std::optional<store::Damage> ForEachFrame(const std::string& name, const store::MappedFile& file,
                                          Visit&& visit) {
  store::RunLogReader reader(name, file);
  v1::Frame frame;
  std::string_view raw;
  while (reader.Next(frame, raw)) {
    if (absl::Status s = visit(frame); !s.ok()) return reader.DamageHere(std::string(s.message()));
  }
  return reader.damage();
}

// Reads the segments of one process, which share definitions and plans.
absl::Status ReadLog(const char* command, const std::string& name, std::span<const store::Segment> segments,
                     const tables::PlacedWork* placed, const EmitRow& emit) {
  std::vector<std::unique_ptr<store::MappedFile>> files;
  std::vector<uint64_t> good_batches;
  tables::RecordLines lines = placed == nullptr ? tables::RecordLines() : tables::RecordLines(placed);
  for (const store::Segment& segment : segments) {
    absl::StatusOr<std::unique_ptr<store::MappedFile>> file = store::MappedFile::Open(segment.path);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
    uint64_t good = 0;
    const std::optional<store::Damage> damage =
        ForEachFrame(segment.name, *files.back(), [&](const v1::Frame& frame) {
          if (frame.has_hello()) lines.LearnHello(frame.hello());
          if (!frame.has_batch()) return absl::OkStatus();
          absl::Status status = lines.Learn(frame.batch());
          if (status.ok()) ++good;
          return status;
        });
    good_batches.push_back(good);
    if (damage.has_value()) Fail(command, absl::StrCat(name, ": ", DamageLine(*damage)), kFailed);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    uint64_t batches = 0;
    const std::optional<store::Damage> damage =
        ForEachFrame(segments[i].name, *files[i], [&](const v1::Frame& frame) {
          if (frame.has_batch() && batches++ < good_batches[i]) return lines.Write(frame.batch(), emit);
          return absl::OkStatus();
        });
    // It was whole a moment ago.
    if (damage.has_value() && batches < good_batches[i])
      Fail(command, absl::StrCat(name, ": ", DamageLine(*damage)), kFailed);
  }
  return absl::OkStatus();
}

// When the oldest generation that is left began.
uint64_t DetailSinceNs(const store::RunFiles& run) {
  uint64_t since = UINT64_MAX;
  for (const store::Segment& segment : run.segments) {
    if (segment.generation != run.FirstGeneration()) continue;
    const absl::StatusOr<std::unique_ptr<store::MappedFile>> file = store::MappedFile::Open(segment.path);
    if (!file.ok()) continue;
    store::RunLogReader reader(segment.name, **file);
    v1::Frame frame;
    std::string_view raw;
    if (reader.Next(frame, raw)) since = std::min(since, reader.created_ns());
  }
  return since;
}

}  // namespace

absl::Status ForEachRecordRow(const char* command, const GivenRun& run, const std::function<bool()>& go_on,
                              const EmitRow& emit, const tables::PlacedWork* placed) {
  const absl::StatusOr<store::RunFiles> files = store::ListRun(run.directory());
  if (!files.ok()) return files.status();
  if (files->FirstGeneration() > 1) {
    const absl::Time since = absl::FromUnixNanos(static_cast<int64_t>(DetailSinceNs(*files)));
    Fail(command,
         absl::StrCat(run.name(), ": records exist from ",
                      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", since, absl::UTCTimeZone()),
                      " on; older ones were dropped to stay within --keep"),
         kDone);
  }
  const std::span<const store::Segment> segments(files->segments);
  for (size_t at = 0; at < segments.size() && go_on();) {
    size_t end = at + 1;
    while (end < segments.size() && segments[end].log == segments[at].log) ++end;
    if (absl::Status s = ReadLog(command, run.name(), segments.subspan(at, end - at), placed, emit); !s.ok())
      return s;
    at = end;
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::cli
