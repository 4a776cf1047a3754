// A damaged file: any bytes as a run log, replayed into a model, reported and exported.
#include <cstddef>
#include <cstdint>
#include <string>

#include "collector/analysis/build_report.h"
#include "collector/model/job/job_model.h"
#include "collector/render/html_report.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/store/run_log_reader.h"
#include "collector/tables/record_lines.h"
#include "tests/fuzz/target.h"

GPUPROBE_FUZZ_TARGET(run_log)(const uint8_t* data, size_t size) {
  using namespace gpuprobe;
  store::RunLogReader reader("fuzz.gpr", {reinterpret_cast<const char*>(data), size});
  model::JobModel job;
  model::ProcessModel* process = nullptr;
  tables::RecordLines lines;
  v1::Frame frame;
  std::string_view raw;
  size_t characters = 0;
  while (reader.Next(frame, raw)) {
    if (frame.has_hello()) {
      process = &job.Join(frame.hello());
      lines.LearnHello(frame.hello());
    }
    if (!frame.has_batch() || process == nullptr) continue;
    if (!process->Apply(frame.batch()).ok() || !lines.Learn(frame.batch()).ok()) break;
    lines.Write(frame.batch(), [&](const std::string& line) { characters += line.size(); }).IgnoreError();
  }
  job.Finish();
  const analysis::Report report = analysis::BuildReport(job, {});
  characters += render::JsonReport(report).size() + render::TextReport(report, "").size() +
                render::HtmlReport(report).size();
  return characters == 0 ? 1 : 0;
}
