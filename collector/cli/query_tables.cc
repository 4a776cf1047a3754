#include "collector/cli/query_tables.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/run_tables.h"
#include "collector/recording/version.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".sqlite";

// FNV-1a.
class Fingerprint {
 public:
  void Add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value_ = (value_ ^ 0xff) * 0x100000001b3;
  }
  // A file's path, size and time; its size.
  uint64_t AddFile(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return 0;
    Add(absl::StrCat(path, " ", status.st_size, " ", status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec));
    return static_cast<uint64_t>(status.st_size);
  }
  std::string Name() const { return absl::StrCat(absl::Hex(value_, absl::kZeroPad16), kSuffix); }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// Where the run's database is kept; nothing: it is not.
std::optional<fs::path> PlaceFor(const GivenRun& run, const StepMarkerOption& marker) {
  std::error_code error;
  if (absl::StrContains(run.name(), "://")) return std::nullopt;  // a copy, which goes
  const fs::path directory = fs::canonical(run.directory(), error);
  if (error || !fs::exists(directory / "report.json", error)) return std::nullopt;
  const absl::StatusOr<store::RunFiles> files = store::ListRun(directory);
  if (!files.ok() || files->FirstGeneration() > 1) return std::nullopt;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr || *cache != '/') cache = nullptr;
  if (cache == nullptr && (home == nullptr || *home != '/')) return std::nullopt;
  Fingerprint fingerprint;
  fingerprint.Add(recording::Version());
  fingerprint.AddFile("/proc/self/exe");
  fingerprint.Add(marker.marker.text());
  uint64_t bytes = 0;
  for (const store::Segment& segment : files->segments) bytes += fingerprint.AddFile(segment.path);
  for (const auto& [generation, path] : files->totals) fingerprint.AddFile(path);
  if (bytes < kSmallestKept) return std::nullopt;
  return (cache != nullptr ? fs::path(cache) : fs::path(home) / ".cache") / "gpuprobe" / "query" /
         fingerprint.Name();
}

bool MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  struct stat status {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 077) == 0;
}

// The oldest go first, unfinished ones of programs that were killed among them.
void KeepWithinBounds(const fs::path& folder) {
  std::error_code error;
  struct Kept {
    fs::file_time_type used;
    fs::path path;
    uint64_t bytes = 0;
  };
  std::vector<Kept> kept;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    kept.push_back({entry.last_write_time(error), entry.path(), entry.file_size(error)});
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.used > b.used; });
  uint64_t bytes = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    bytes += kept[i].bytes;
    if (i >= kMostKept || bytes > kMostKeptBytes) fs::remove(kept[i].path, error);
  }
}

absl::StatusOr<std::unique_ptr<tables::Database>> Fill(const char* command, const GivenRun& run,
                                                       const StepMarkerOption& marker,
                                                       const std::string& path, bool* whole) {
  absl::StatusOr<std::unique_ptr<tables::Database>> database = tables::Database::Create(path);
  if (!database.ok()) return database;
  const absl::StatusOr<bool> filled = FillTables(command, run, marker, **database);
  if (!filled.ok()) return filled.status();
  *whole = *filled;
  return database;
}

}  // namespace

absl::StatusOr<std::unique_ptr<tables::Database>> OpenTables(const char* command, const GivenRun& run,
                                                             const StepMarkerOption& marker) {
  bool whole = false;
  std::error_code error;
  const std::optional<fs::path> place = PlaceFor(run, marker);
  if (!place.has_value() || !MakeFolder(place->parent_path())) return Fill(command, run, marker, "", &whole);
  if (absl::StatusOr<std::unique_ptr<tables::Database>> kept = tables::Database::Open(*place); kept.ok()) {
    fs::last_write_time(*place, fs::file_time_type::clock::now(), error);
    return kept;
  }
  const std::string growing = absl::StrCat(place->string(), ".", getpid());
  absl::StatusOr<std::unique_ptr<tables::Database>> database = Fill(command, run, marker, growing, &whole);
  if (database.ok() && whole) {
    fs::rename(growing, *place, error);
    KeepWithinBounds(place->parent_path());
  } else {
    fs::remove(growing, error);  // an open one is read all the same
  }
  // SQLite's trouble with that place, such as a full disk, is no reason not to answer.
  if (absl::IsUnavailable(database.status())) return Fill(command, run, marker, "", &whole);
  return database;
}

}  // namespace gpuprobe::cli
