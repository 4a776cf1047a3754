// Hello with anything in it, through the session's rules: names that it gives to files stay inside their
// directory, and what a person reads afterwards holds no character that a terminal would obey.
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "collector/analysis/build_report.h"
#include "collector/framing/frame_decoder.h"
#include "collector/ingest/session.h"
#include "collector/model/job/job_model.h"
#include "collector/render/html_report.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/store/directory.h"
#include "collector/store/run_directory.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/target.h"

namespace gpuprobe {
namespace {

class Ignores : public ingest::FrameSink {
 public:
  absl::Status OnBatch(const v1::Batch&, std::string_view) override { return absl::OkStatus(); }
  void OnBye(const v1::Bye&, std::string_view) override {}
  void OnClosed(bool) override {}
};

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequirePrintable(const std::string& text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    Require((byte >= 0x20 && byte != 0x7f) || c == '\n');
  }
}

// One path component that hides nothing.
void RequireFileName(const std::string& name) {
  Require(!name.empty() && name.size() <= 128 && name.front() != '.');
  Require(name.find('/') == std::string::npos && name.find('\0') == std::string::npos);
  RequirePrintable(name);
}

}  // namespace
}  // namespace gpuprobe

GPUPROBE_FUZZ_TARGET(hello)(const uint8_t* data, size_t size) {
  using namespace gpuprobe;
  fuzz::Choices choices(data, size);
  const bool show = choices.Rarely(8);  // most of the time would go into writing JSON
  v1::Frame frame;
  v1::Hello& hello = *frame.mutable_hello();
  if (!choices.Rarely(4)) hello = fuzz::PlainHello(0);
  fuzz::Fill(choices, hello);
  if (!choices.Rarely(8)) hello.set_protocol_major(1);
  std::string bytes;
  framing::AppendDelimited(frame.SerializeAsString(), bytes);

  model::JobModel job;
  const ingest::SinkFactory join =
      [&](const v1::Hello& heard, std::string_view) -> absl::StatusOr<std::unique_ptr<ingest::FrameSink>> {
    job.Join(heard);
    return std::make_unique<Ignores>();
  };
  {
    ingest::Session session(join);
    std::string reply;
    const size_t cut = choices.Below(65536) % (bytes.size() + 1);
    if (session.Receive({bytes.data(), cut}, reply).ok())
      session.Receive({bytes.data() + cut, bytes.size() - cut}, reply).IgnoreError();
    RequirePrintable(session.name());
  }
  if (job.processes().empty()) return 0;
  const v1::Identity& identity = job.processes().front()->identity();
  const std::string run = store::DefaultRunDirectory(store::RunName(identity), 1);
  constexpr std::string_view kParent = "gpuprobe-runs/";
  Require(run.compare(0, kParent.size(), kParent) == 0);
  RequireFileName(run.substr(kParent.size()));
  static const store::Directory kPlace =
      store::Directory::Adopt(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "/");
  RequireFileName(store::LogName(kPlace, identity));
  job.Finish();
  const analysis::Report report = analysis::BuildReport(job, {});
  RequirePrintable(render::TextReport(report, ""));
  if (!show) return 0;
  Require(!render::JsonReport(report).empty());
  Require(render::HtmlReport(report).find("<b>bold") == std::string::npos);
  return 0;
}
