// A hostile peer: any bytes into a session with a real model behind it. Nothing may crash, and memory stays
// in proportion.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collector/ingest/session.h"
#include "collector/model/job/job_model.h"
#include "tests/fuzz/target.h"

namespace gpuprobe {
namespace {

class ModelSink : public ingest::FrameSink {
 public:
  explicit ModelSink(model::ProcessModel& process) : process_(process) {}
  absl::Status OnBatch(const v1::Batch& batch, std::string_view) override { return process_.Apply(batch); }
  void OnBye(const v1::Bye& bye, std::string_view) override { process_.ApplyBye(bye); }
  void OnClosed(bool) override {}

 private:
  model::ProcessModel& process_;
};

}  // namespace
}  // namespace gpuprobe

GPUPROBE_FUZZ_TARGET(frame_decoder)(const uint8_t* data, size_t size) {
  gpuprobe::model::JobModel job;
  const gpuprobe::ingest::SinkFactory factory =
      [&](const gpuprobe::v1::Hello& hello,
          std::string_view) -> absl::StatusOr<std::unique_ptr<gpuprobe::ingest::FrameSink>> {
    return std::make_unique<gpuprobe::ModelSink>(job.Join(hello));
  };
  {
    gpuprobe::ingest::Session session(factory);
    std::string reply;
    // In two pieces, cut where the first byte says.
    const size_t cut = size > 0 ? data[0] % (size + 1) : 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (session.Receive(bytes.substr(0, cut), reply).ok())
      session.Receive(bytes.substr(cut), reply).IgnoreError();
  }
  job.Finish();
  return 0;
}
