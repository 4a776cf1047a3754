#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/render/record_lines.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kName[] = "export";

// Calls `visit` for every readable frame; the damage at the end, if any. A visitor's error ends the log as
// damage.
template <typename Visit>
std::optional<store::Damage> ForEachFrame(const std::string& name, std::string_view bytes, Visit&& visit) {
  store::RunLogReader reader(name, bytes);
  v1::Frame frame;
  std::string_view raw;
  while (reader.Next(frame, raw)) {
    if (absl::Status s = visit(frame); !s.ok()) return reader.DamageHere(std::string(s.message()));
  }
  return reader.damage();
}

void Print(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
}

absl::Status ExportLog(const std::string& directory, const std::string& path) {
  absl::StatusOr<std::unique_ptr<store::MappedFile>> file = store::MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::string name = std::filesystem::path(path).filename();
  render::RecordLines lines;
  uint64_t good_batches = 0;
  const std::optional<store::Damage> damage =
      ForEachFrame(name, (*file)->bytes(), [&](const v1::Frame& frame) {
        if (frame.has_hello()) lines.LearnHello(frame.hello());
        if (!frame.has_batch()) return absl::OkStatus();
        const absl::Status status = lines.Learn(frame.batch());
        if (status.ok()) ++good_batches;
        return status;
      });
  if (damage.has_value()) Fail(kName, absl::StrCat(directory, ": ", DamageLine(*damage)), kFailed);
  uint64_t batches = 0;
  ForEachFrame(name, (*file)->bytes(), [&](const v1::Frame& frame) {
    if (frame.has_batch() && batches++ < good_batches) return lines.Write(frame.batch(), Print);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

}  // namespace

int ExportMain(const Arguments& arguments) {
  CLI::App app("Prints every record of a run, one a line, log after log", "gpuprobe export");
  std::string directory;
  std::string format = "jsonl";
  app.add_option("DIR", directory, "run directory")->required();
  app.add_option("--format", format, "jsonl: one JSON object a line")->check(CLI::IsMember({"jsonl"}));
  if (const auto code = Parse(app, arguments)) return *code;
  const absl::StatusOr<std::vector<std::string>> logs = store::ListLogs(directory);
  if (!logs.ok()) return Fail(kName, logs.status(), kFailed);
  for (const std::string& log : *logs) {
    if (absl::Status s = ExportLog(directory, log); !s.ok()) return Fail(kName, s, kFailed);
  }
  return std::fflush(stdout) == 0 ? kDone : Fail(kName, "standard output cannot be written", kFailed);
}

}  // namespace gpuprobe::cli
