#include "collector/store/run_files.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "collector/store/run_log_reader.h"
#include "collector/store/run_log_writer.h"

namespace gpuprobe::store {
namespace {

namespace fs = std::filesystem;

constexpr char kTotalsPrefix[] = "totals-";
constexpr size_t kPartBytes = size_t{4} << 20;
constexpr size_t kMaxStateBytes = size_t{1} << 30;

bool ParseGeneration(absl::string_view text, uint32_t& generation) {
  return text.size() >= 4 && absl::SimpleAtoi(text, &generation) && generation >= 2;
}

Segment SegmentAt(const fs::path& path) {
  Segment segment{.path = path.string(), .name = path.filename().string(), .log = path.stem().string()};
  const size_t dot = segment.log.rfind('.');
  uint32_t generation = 0;
  if (dot != std::string::npos &&
      ParseGeneration(absl::string_view(segment.log).substr(dot + 1), generation)) {
    segment.log.resize(dot);
    segment.generation = generation;
  }
  return segment;
}

RunFiles Sort(const std::string& directory, const std::vector<std::string>& names) {
  RunFiles files;
  for (const std::string& name : names) {
    const fs::path file = fs::path(directory) / name;
    if (file.extension() == kLogSuffix) files.segments.push_back(SegmentAt(file));
    if (file.extension() != kTotalsSuffix) continue;
    const std::string stem = file.stem().string();
    absl::string_view number = stem;
    uint32_t generation = 0;
    if (absl::ConsumePrefix(&number, kTotalsPrefix) && ParseGeneration(number, generation)) {
      files.totals[generation] = file.string();
    }
  }
  // Shorter names first, so that rank-2 comes before rank-10.
  std::sort(files.segments.begin(), files.segments.end(), [](const Segment& a, const Segment& b) {
    if (a.log != b.log) return a.log.size() != b.log.size() ? a.log.size() < b.log.size() : a.log < b.log;
    return a.generation < b.generation;
  });
  return files;
}

// The names of what is in it. `folders`, if given: of those that are directories themselves.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path, std::vector<std::string>* folders) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
    if (folders != nullptr && it->symlink_status(error).type() == fs::file_type::directory)
      folders->push_back(names.back());
  }
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return names;
}

// A host's part of a run becomes part of `files`.
absl::Status Add(const std::string& host, const std::string& path, RunFiles of_host, Dropped dropped,
                 RunFiles& files) {
  if (of_host.segments.empty()) return absl::OkStatus();
  if (of_host.FirstGeneration() > 1 && dropped == Dropped::kRefuse) {
    return absl::FailedPreconditionError(absl::StrCat(path,
                                                      " has dropped records to stay within --keep, so that "
                                                      "it cannot be reported together with other hosts: "
                                                      "report it alone, or record with a larger --keep"));
  }
  files.hosts.push_back(host);
  for (Segment& segment : of_host.segments) {
    segment.name = absl::StrCat(host, "/", segment.name);
    segment.log = absl::StrCat(host, "/", segment.log);
    files.segments.push_back(std::move(segment));
  }
  return absl::OkStatus();
}

// The runs in the folders, each one host's, become one.
absl::Status AddHosts(const std::string& path, std::vector<std::string> folders, Dropped dropped,
                      RunFiles& files) {
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) {
    const std::string at = absl::StrCat(path, "/", folder);
    const absl::StatusOr<std::vector<std::string>> names = NamesIn(at, nullptr);
    if (!names.ok()) return names.status();
    if (absl::Status s = Add(folder, at, Sort(at, *names), dropped, files); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t RunFiles::FirstGeneration() const {
  uint32_t first = UINT32_MAX;
  for (const Segment& segment : segments) first = std::min(first, segment.generation);
  return segments.empty() ? 1 : first;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameCharacters && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
         });
}

std::string SegmentName(const std::string& log, uint32_t generation) {
  return generation <= 1 ? absl::StrCat(log, kLogSuffix)
                         : absl::StrFormat("%s.%04u%s", log, generation, kLogSuffix);
}

std::string TotalsName(uint32_t generation) {
  return absl::StrFormat("%s%04u%s", kTotalsPrefix, generation, kTotalsSuffix);
}

absl::StatusOr<RunFiles> ListRun(const std::string& path, Dropped dropped) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, ": no such directory"));
  if (!fs::is_directory(path, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a file, not a run directory; name the directory"));
  }
  std::vector<std::string> folders;
  absl::StatusOr<std::vector<std::string>> names = NamesIn(path, &folders);
  if (!names.ok()) return names.status();
  RunFiles files = Sort(path, *names);
  if (files.segments.empty()) {
    if (absl::Status s = AddHosts(path, std::move(folders), dropped, files); !s.ok()) return s;
  }
  if (files.segments.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not a run directory: it holds no .gpr log; name one created by gpuprobe run or collect"));
  }
  return files;
}

absl::StatusOr<RunFiles> ListRuns(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return ListRun(paths.front());
  RunFiles files;
  for (const std::string& path : paths) {
    absl::StatusOr<RunFiles> run = ListRun(path);
    if (!run.ok()) return run;
    if (absl::Status s = Add(path, path, *std::move(run), Dropped::kRefuse, files); !s.ok()) return s;
  }
  return files;
}

absl::StatusOr<RunFiles> ListRun(const Directory& directory) {
  absl::StatusOr<std::vector<std::string>> names = directory.List();
  if (!names.ok()) return names.status();
  return Sort(directory.path(), *names);
}

absl::Status WriteTotals(const Directory& directory, const std::string& name, const std::string& version,
                         uint64_t now_ns, StateSource state) {
  const std::string temporary = absl::StrCat(name, ".tmp");
  directory.Remove(temporary);  // left by a collector that was killed while it wrote
  absl::StatusOr<std::unique_ptr<RunLogWriter>> writer =
      RunLogWriter::Create(directory, temporary, version, now_ns);
  if (!writer.ok()) return writer.status();
  absl::Status status;
  const auto append = [&](std::string_view part, bool last) {
    v1::Frame frame;
    frame.mutable_model_state()->set_part(part.data(), part.size());
    frame.mutable_model_state()->set_last(last);
    status = (*writer)->Append(frame.SerializeAsString(), 0);
  };
  state([&](std::string_view part) {
    for (; !part.empty() && status.ok(); part.remove_prefix(std::min(part.size(), kPartBytes)))
      append(part.substr(0, kPartBytes), false);
  });
  if (status.ok()) append({}, true);
  if (status.ok()) status = (*writer)->Flush();
  if (status.ok()) status = directory.Rename(temporary, name);
  if (!status.ok()) directory.Remove(temporary);
  return status;
}

absl::StatusOr<std::string> ReadTotals(const std::string& path) {
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  RunLogReader reader(fs::path(path).filename().string(), **file);
  v1::Frame frame;
  std::string_view raw;
  std::string state;
  while (reader.Next(frame, raw)) {
    if (!frame.has_model_state()) continue;
    state += frame.model_state().part();
    if (state.size() > kMaxStateBytes) return absl::DataLossError("too large");
    if (frame.model_state().last()) return state;
  }
  return absl::DataLossError(reader.damage().has_value() ? reader.damage()->what : "incomplete");
}

}  // namespace gpuprobe::store
