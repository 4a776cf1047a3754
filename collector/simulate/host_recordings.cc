#include "collector/simulate/host_recordings.h"

#include <csignal>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/framing/frame_decoder.h"
#include "collector/store/directory.h"
#include "collector/store/run_recording.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint64_t kKeepOfHost = uint64_t{1} << 30;

struct RecordedRank {
  framing::FrameDecoder decoder;
  store::RunRecording::Log* log = nullptr;
  v1::ClockPair began;
  bool said_bye = false;
};

class RecordedHost {
 public:
  static absl::StatusOr<std::unique_ptr<RecordedHost>> Make(const std::string& folder, uint64_t realtime_ns) {
    absl::StatusOr<store::Directory> made = store::Directory::Make(folder);
    if (!made.ok()) return made.status();
    return std::unique_ptr<RecordedHost>(new RecordedHost(*std::move(made), realtime_ns));
  }

  absl::Status Read(RecordedRank& rank, std::string_view bytes, uint64_t now_ns) {
    rank.decoder.Append(bytes);
    while (true) {
      const auto next = rank.decoder.Take();
      if (!next.ok()) return next.status();
      if (!next->has_frame) return absl::OkStatus();
      if (absl::Status s = Record(rank, next->frame, now_ns); !s.ok()) return s;
    }
  }
  // Its connection closes. `signal`: what ended a process that did not say so.
  absl::Status End(RecordedRank& rank, int signal, uint64_t now_ns) {
    if (!rank.said_bye) {
      if (absl::Status s = Observe(rank, signal, now_ns); !s.ok()) return s;
    }
    return NoteConnection(rank, /*open=*/false, now_ns);
  }
  absl::Status Close() { return recording_.Close(); }

 private:
  RecordedHost(store::Directory directory, uint64_t realtime_ns)
      : directory_(std::move(directory)),
        recording_(directory_, GPUPROBE_VERSION, kKeepOfHost, realtime_ns) {}

  absl::Status Record(RecordedRank& rank, std::string_view raw, uint64_t now_ns) {
    v1::Frame frame;
    if (!frame.ParseFromArray(raw.data(), static_cast<int>(raw.size())))
      return absl::InternalError("a frame of the simulation");
    if (frame.has_batch()) return rank.log->AppendBatch(frame.batch(), raw, now_ns);
    if (frame.has_bye()) rank.said_bye = true;
    if (!frame.has_hello()) return rank.log->Append(raw, now_ns);
    rank.began = frame.hello().clock();
    absl::StatusOr<store::RunRecording::Log*> log = recording_.Open(frame.hello(), raw, now_ns);
    if (!log.ok()) return log.status();
    rank.log = *log;
    return NoteConnection(rank, /*open=*/true, now_ns);
  }
  static absl::Status NoteConnection(RecordedRank& rank, bool open, uint64_t now_ns) {
    v1::Frame frame;
    frame.mutable_connection()->set_open(open);
    return rank.log->Append(frame.SerializeAsString(), now_ns);
  }
  static absl::Status Observe(RecordedRank& rank, int signal, uint64_t now_ns) {
    v1::Frame frame;
    v1::ProcessObservation& seen = *frame.mutable_process_observation();
    seen.mutable_clock()->set_realtime_ns(rank.began.realtime_ns() + now_ns);
    seen.mutable_clock()->set_monotonic_ns(rank.began.monotonic_ns() + now_ns);
    seen.mutable_end()->set_known(true);
    seen.mutable_end()->set_signal(static_cast<uint32_t>(signal));
    return rank.log->Append(frame.SerializeAsString(), now_ns);
  }

  store::Directory directory_;
  store::RunRecording recording_;
};

}  // namespace

absl::Status RecordHosts(const TrainingJob& job, const SimulationOptions& options,
                         const std::string& directory) {
  std::map<int, std::unique_ptr<RecordedHost>> hosts;
  for (int host = 0; host * job.ranks_per_host < job.ranks; ++host) {
    absl::StatusOr<std::unique_ptr<RecordedHost>> made = RecordedHost::Make(
        absl::StrCat(directory, "/", options.placement.hosts[static_cast<size_t>(host)]), options.epoch_ns);
    if (!made.ok()) return made.status();
    hosts[host] = *std::move(made);
  }
  std::map<int, RecordedRank> ranks;
  Simulation simulation(job, options, nullptr);
  absl::Status status =
      simulation.Run([&](int number, int64_t now, std::string_view bytes, bool last) -> absl::Status {
        const auto now_ns = static_cast<uint64_t>(now);
        RecordedHost& host = *hosts.at(number / job.ranks_per_host);
        RecordedRank& rank = ranks[number];
        if (absl::Status s = host.Read(rank, bytes, now_ns); !s.ok()) return s;
        // The launcher ends the processes that are left.
        return last ? host.End(rank, number == job.death.rank ? SIGSEGV : SIGTERM, now_ns) : absl::OkStatus();
      });
  if (!status.ok()) return status;
  for (const auto& [number, host] : hosts) {
    if (absl::Status s = host->Close(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::simulate
