// A simulated job as a finished model, without sockets and files.
#pragma once

#include <map>
#include <memory>

#include "collector/framing/frame_decoder.h"
#include "collector/model/job/job_model.h"
#include "collector/simulate/simulation.h"

namespace gpuprobe::testing {

// nullptr when the simulation failed.
inline std::unique_ptr<model::JobModel> ModelOf(const simulate::TrainingJob& training, uint64_t seed) {
  auto job = std::make_unique<model::JobModel>();
  simulate::SimulationOptions options;
  options.seed = seed;
  simulate::Simulation simulation(training, options, nullptr);
  std::map<int, framing::FrameDecoder> decoders;
  std::map<int, model::ProcessModel*> processes;
  const absl::Status status = simulation.Run([&](int rank, int64_t, std::string_view bytes, bool) {
    framing::FrameDecoder& decoder = decoders[rank];
    decoder.Append(bytes);
    while (true) {
      const auto next = decoder.Take();
      if (!next.ok()) return next.status();
      if (!next->has_frame) return absl::OkStatus();
      v1::Frame frame;
      if (!frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size())))
        return absl::InternalError("frame");
      if (frame.has_hello()) processes[rank] = &job->Join(frame.hello());
      if (!frame.has_batch()) continue;
      if (absl::Status s = processes[rank]->Apply(frame.batch()); !s.ok()) return s;
    }
  });
  if (!status.ok()) return nullptr;
  job->Finish();
  return job;
}

}  // namespace gpuprobe::testing
