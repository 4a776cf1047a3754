#include "collector/cli/recorder.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/render/html_report.h"
#include "collector/render/json_report.h"
#include "collector/store/run_directory.h"
#include "spdlog/spdlog.h"

namespace gpuprobe::cli {

class Recorder::Sink : public ingest::FrameSink {
 public:
  Sink(Recorder& recorder, model::ProcessModel& process, store::RunLogWriter& log)
      : recorder_(recorder), process_(process), log_(log) {}

  absl::Status OnBatch(const v1::Batch& batch, std::string_view raw) override {
    // What contradicts the schema is not recorded either: a log must replay.
    if (absl::Status s = process_.Apply(batch); !s.ok()) return s;
    recorder_.Note(log_.Append(raw, MonotonicNs()));
    return absl::OkStatus();
  }
  void OnBye(const v1::Bye& bye, std::string_view raw) override {
    process_.ApplyBye(bye);
    recorder_.Note(log_.Append(raw, MonotonicNs()));
  }
  void OnClosed(bool cut_off) override {
    if (cut_off) process_.MarkCutOff();
    recorder_.Note(log_.Flush());
  }

 private:
  Recorder& recorder_;
  model::ProcessModel& process_;
  store::RunLogWriter& log_;
};

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(const std::string& directory) {
  std::unique_ptr<Recorder> recorder(new Recorder());
  if (directory.empty()) {
    if (absl::Status s = store::CheckDefaultRunDirectory(); !s.ok()) return s;
    return recorder;
  }
  recorder->made_directory_ = !std::filesystem::exists(directory);
  if (absl::Status s = store::PrepareRunDirectory(directory); !s.ok()) return s;
  recorder->directory_ = directory;
  return recorder;
}

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Recorder::Open(const v1::Hello& hello,
                                                                  std::string_view raw) {
  if (directory_.empty()) {
    const std::string directory = store::DefaultRunDirectory(store::RunName(hello.identity()), NowNs());
    if (absl::Status s = store::PrepareRunDirectory(directory); !s.ok()) return s;
    directory_ = directory;
    made_directory_ = true;
  }
  model::ProcessModel& process = job_.Join(hello);
  std::unique_ptr<store::RunLogWriter>& log = logs_[&process];
  if (log == nullptr) {
    const std::string path = absl::StrCat(directory_, "/", store::LogName(directory_, hello.identity()));
    absl::StatusOr<std::unique_ptr<store::RunLogWriter>> created =
        store::RunLogWriter::Create(path, Version(), NowNs());
    if (!created.ok()) return created.status();
    log = *std::move(created);
  }
  Note(log->Append(raw, MonotonicNs()));
  return std::make_unique<Sink>(*this, process, *log);
}

void Recorder::Note(const absl::Status& status) {
  if (status.ok() || said_disk_trouble_) return;
  said_disk_trouble_ = true;
  spdlog::warn("records are no longer written: {}; they are still counted", std::string(status.message()));
}

void Recorder::Tick() {
  const uint64_t now_ns = MonotonicNs();
  for (auto& [process, log] : logs_) Note(log->FlushIfDue(now_ns));
}

absl::StatusOr<analysis::Report> Recorder::Finish(const std::vector<std::string>& command_line) {
  analysis::ReportInput input;
  input.collector_version = Version();
  input.command_line = command_line;
  for (auto& [process, log] : logs_) {
    Note(log->Flush());
    input.unrecorded_frames += log->unrecorded_frames();
  }
  logs_.clear();
  job_.Finish();
  analysis::Report report = analysis::BuildReport(job_, input);
  if (absl::Status s = store::WriteFile(directory_ + "/report.json", render::JsonReport(report)); !s.ok())
    return s;
  if (absl::Status s = store::WriteFile(directory_ + "/report.html", render::HtmlReport(report)); !s.ok())
    return s;
  return report;
}

void Recorder::RemoveIfEmpty() {
  if (!made_directory_ || directory_.empty() || heard_anything()) return;
  std::error_code ignored;
  std::filesystem::remove(directory_, ignored);
}

}  // namespace gpuprobe::cli
