#include "collector/simulate/many_hosts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/framing/frame_decoder.h"
#include "collector/model/job/job_model.h"
#include "collector/store/directory.h"
#include "collector/store/roll_up_recording.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::simulate {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKeepBytes = uint64_t{1} << 30;  // of a host

// What one rank of the simulation sent.
struct Said {
  int64_t now_ns = 0;
  size_t rank = 0;  // of its host
  v1::Frame frame;
};

absl::Status Decode(framing::FrameDecoder& decoder, std::string_view bytes, Said said,
                    std::vector<Said>& all) {
  decoder.Append(bytes);
  while (true) {
    const auto next = decoder.Take();
    if (!next.ok()) return next.status();
    if (!next->has_frame) return absl::OkStatus();
    if (!said.frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size())))
      return absl::InternalError("a frame of the simulation");
    all.push_back(said);
  }
}

// The place of one host in the job of many.
class Place {
 public:
  Place(const TrainingJob& job, int host, int hosts)
      : ranks_of_job_(job.ranks), ranks_of_host_(job.ranks_per_host), host_(host), hosts_(hosts) {}

  std::string name() const { return absl::StrFormat("host-%05d", host_); }

  static bool Moves(const v1::Frame& frame) {
    return frame.has_hello() || frame.batch().devices_size() > 0 || frame.batch().communicators_size() > 0;
  }
  // What differs from place to place. REQUIRES: Moves(frame).
  void Move(size_t rank, v1::Frame& frame) const {
    const int now = host_ * ranks_of_host_ + static_cast<int>(rank);
    if (frame.has_hello()) {
      v1::Identity& identity = *frame.mutable_hello()->mutable_identity();
      identity.set_host(name());
      identity.set_rank(now);
      identity.set_world_size(hosts_ * ranks_of_host_);
    }
    if (!frame.has_batch()) return;
    for (v1::Device& device : *frame.mutable_batch()->mutable_devices())
      device.set_uuid(absl::StrCat(device.uuid(), "-", host_));
    for (v1::Communicator& comm : *frame.mutable_batch()->mutable_communicators()) {
      if (comm.ranks() == ranks_of_job_) {
        comm.set_ranks(hosts_ * ranks_of_host_);
        comm.set_rank(now);
      } else {
        comm.set_hash(comm.hash() + static_cast<uint64_t>(host_) * 1'000'003);
      }
    }
  }

 private:
  const int ranks_of_job_;
  const int ranks_of_host_;
  const int host_;
  const int hosts_;
};

// The collector of one host.
class Host {
 public:
  static absl::StatusOr<std::unique_ptr<Host>> Make(const std::string& folder, uint64_t realtime_ns) {
    absl::StatusOr<store::Directory> made = store::Directory::Make(folder);
    if (!made.ok()) return made.status();
    auto host = std::unique_ptr<Host>(new Host(*std::move(made)));
    auto roll_ups = store::RollUpRecording::Make(host->directory_, GPUPROBE_VERSION, kKeepBytes, realtime_ns);
    if (!roll_ups.ok()) return roll_ups.status();
    host->roll_ups_ = *std::move(roll_ups);
    host->job_.KeepRollUps();
    return host;
  }

  absl::Status Read(size_t rank, const v1::Frame& frame, uint64_t now_ns, uint64_t realtime_ns) {
    if (frame.has_hello()) {
      processes_[rank] = &job_.Join(frame.hello());
      return roll_ups_->Open(*processes_[rank], now_ns);
    }
    model::ProcessModel& process = *processes_.at(rank);
    if (frame.has_bye()) {
      process.ApplyBye(frame.bye());
      if (absl::Status s = roll_ups_->RollUp(job_, process, now_ns); !s.ok()) return s;
      return roll_ups_->Append(process, frame.SerializeAsString(), now_ns);
    }
    if (absl::Status s = process.Apply(frame.batch()); !s.ok()) return s;
    if (roll_ups_->IsDue(now_ns)) return roll_ups_->RollUpAll(job_, now_ns, realtime_ns);
    return absl::OkStatus();
  }

  absl::Status Finish(uint64_t now_ns) {
    job_.Finish();
    if (absl::Status s = roll_ups_->RollUpEnd(job_, now_ns); !s.ok()) return s;
    return roll_ups_->Close(job_, now_ns);
  }

 private:
  explicit Host(store::Directory directory) : directory_(std::move(directory)) {}

  store::Directory directory_;
  std::unique_ptr<store::RollUpRecording> roll_ups_;
  model::JobModel job_;
  std::map<size_t, model::ProcessModel*> processes_;
};

// In the order of time, of each of the two hosts.
absl::Status Record(const TrainingJob& job, const SimulationOptions& options, std::vector<Said> (&said)[2]) {
  Simulation simulation(job, options, nullptr);
  std::map<int, framing::FrameDecoder> decoders;
  return simulation.Run([&](int rank, int64_t now_ns, std::string_view bytes, bool) {
    const int host = rank / job.ranks_per_host;
    return Decode(decoders[rank], bytes,
                  {.now_ns = now_ns, .rank = static_cast<size_t>(rank % job.ranks_per_host), .frame = {}},
                  said[host]);
  });
}

absl::Status RollUp(const std::vector<Said>& said, const Place& place, uint64_t epoch_ns,
                    const std::string& directory) {
  const std::string folder = absl::StrCat(directory, "/", place.name());
  absl::StatusOr<std::unique_ptr<Host>> host = Host::Make(folder, epoch_ns);
  if (!host.ok()) return host.status();
  uint64_t now_ns = 0;
  for (const Said& each : said) {
    now_ns = static_cast<uint64_t>(each.now_ns);
    v1::Frame moved;
    const v1::Frame* frame = &each.frame;  // records are many, and not copied
    if (Place::Moves(each.frame)) {
      moved = each.frame;
      place.Move(each.rank, moved);
      frame = &moved;
    }
    if (absl::Status s = (*host)->Read(each.rank, *frame, now_ns, epoch_ns + now_ns); !s.ok()) return s;
  }
  if (absl::Status s = (*host)->Finish(now_ns); !s.ok()) return s;
  // As a hub has it, which gets nothing else.
  const fs::path rolled_up = fs::path(folder) / store::kRollUpFolder;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(rolled_up, error), end; !error && it != end; it.increment(error))
    files.push_back(it->path());
  for (size_t i = 0; i < files.size() && !error; ++i)
    fs::rename(files[i], fs::path(folder) / files[i].filename(), error);
  if (!error) fs::remove(rolled_up, error);
  return error ? absl::UnavailableError(absl::StrCat(rolled_up.string(), ": ", error.message()))
               : absl::OkStatus();
}

// Communicators of all ranks grow, and those of one host are there on each; others have no place.
bool CanMultiply(const TrainingJob& job) {
  const std::vector<NodeCommunicator> communicators = Communicators(job);
  return job.pipeline == 1 &&
         std::all_of(communicators.begin(), communicators.end(), [&](const NodeCommunicator& comm) {
           const auto [first, last] = std::minmax_element(comm.members.begin(), comm.members.end());
           return comm.members.size() == static_cast<size_t>(job.ranks) ||
                  *first / job.ranks_per_host == *last / job.ranks_per_host;
         });
}

}  // namespace

absl::Status RollUpManyHosts(const TrainingJob& job, const SimulationOptions& options,
                             const ManyHosts& many) {
  if (job.ranks != 2 * job.ranks_per_host)
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts multiplies a job on two hosts: give it --ranks ", 2 * job.ranks_per_host));
  if (!CanMultiply(job))
    return absl::InvalidArgumentError(
        "--hosts needs a job whose communicators have all ranks, or ranks of one host");
  if (const absl::StatusOr<store::Directory> made = store::PrepareRunDirectory(many.directory); !made.ok())
    return made.status();
  std::vector<Said> said[2];
  if (absl::Status s = Record(job, options, said); !s.ok()) return s;
  const int faulty = many.hosts / 2;
  for (int host = 0; host < many.hosts; ++host) {
    const Place place(job, host, many.hosts);
    if (absl::Status s = RollUp(said[host == faulty ? 1 : 0], place, options.epoch_ns, many.directory);
        !s.ok())
      return s;
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::simulate
