#include "collector/simulate/cluster_directory.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/simulate/cluster_day.h"
#include "collector/simulate/host_recordings.h"
#include "collector/simulate/many_hosts.h"
#include "collector/simulate/step_times.h"
#include "collector/store/directory.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::simulate {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kNsPerHour = 3600e9;
constexpr char kTruthFile[] = "truth.json";
constexpr double kHarder = 1.4;  // a fault that costs too little, each time
constexpr int kMostTries = 12;
// What follows from the warm-up goes on for a step.
int FirstMeasured(const TrainingJob& job) { return job.warmup.steps + 2; }

absl::StatusOr<StepTimes> TimesOf(const TrainingJob& job, const SimulationOptions& options) {
  StepTimes times(job.steps);
  Simulation simulation(job, options, &times);
  const absl::Status status =
      simulation.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); });
  if (!status.ok()) return status;
  return times;
}

// The same if its ranks' words took no time.
TrainingJob WithFreeLinks(TrainingJob job) {
  job.link = {.alpha_ns = 100, .beta_bytes_per_ns = 1e6};
  job.network.link.reset();
  return job;
}

// What is known of a job without looking at its records.
struct TruthOfJob {
  TrainingJob job;  // as it runs
  double step_ns = 0;
  double cost_ns_per_step = 0;  // while it lasts
  int first_step = 0;
};

class DayWriter {
 public:
  explicit DayWriter(const ClusterOptions& options)
      : options_(options), day_(PlanDay(options.seed, options.jobs, options.hours)) {}

  absl::Status Write();

 private:
  absl::Status WriteJob(PlannedJob planned);
  absl::Status Settle(PlannedJob& planned);
  absl::StatusOr<TruthOfJob> Measure(const PlannedJob& planned) const;
  absl::Status Record(const PlannedJob& planned, const TrainingJob& job, const std::string& directory) const;
  uint64_t BeginNs(const PlannedJob& planned) const {
    return options_.ends_ns - static_cast<uint64_t>((options_.hours - planned.begins_h) * kNsPerHour);
  }
  SimulationOptions SimulationOf(const PlannedJob& planned) const;
  Json RowOf(const PlannedJob& planned, const TruthOfJob& truth, const std::string& folder);

  const ClusterOptions options_;
  const ClusterDay day_;
  Json rows_ = Json::array();
  std::map<std::string, Gradients> settled_;  // by name
  std::map<std::string, double> step_ns_;     // of each name's last attempt, where it had no fault
};

SimulationOptions DayWriter::SimulationOf(const PlannedJob& planned) const {
  SimulationOptions simulated;
  simulated.name = "cluster";
  simulated.placement = planned.placement;
  simulated.command_line = options_.command_line;
  simulated.seed = planned.seed;
  simulated.uid = options_.uid;
  simulated.epoch_ns = BeginNs(planned);
  return simulated;
}

absl::StatusOr<TruthOfJob> DayWriter::Measure(const PlannedJob& planned) const {
  TruthOfJob truth;
  double strength = 1;
  for (int tries = 0; tries < kMostTries; ++tries, strength *= kHarder) {
    truth.job = WithFault(planned, strength);
    if (EndsTheJob(planned.fault)) return truth;
    const absl::StatusOr<StepTimes> with = TimesOf(truth.job, SimulationOf(planned));
    if (!with.ok()) return with.status();
    truth.first_step =
        std::max(FirstMeasured(truth.job), static_cast<int>(std::ceil(planned.from * truth.job.steps)));
    truth.step_ns = with->MeanNs(truth.first_step);
    if (planned.fault == Fault::kNone) return truth;
    const absl::StatusOr<StepTimes> without = TimesOf(WithoutFault(planned, strength), SimulationOf(planned));
    if (!without.ok()) return without.status();
    truth.cost_ns_per_step = truth.step_ns - without->MeanNs(truth.first_step);
    if (truth.cost_ns_per_step >= kLeastCost * truth.step_ns) return truth;
  }
  return absl::InternalError(
      absl::StrCat(planned.name, ": ", std::string(NameOf(planned.fault)), " costs next to nothing"));
}

absl::Status DayWriter::Record(const PlannedJob& planned, const TrainingJob& job,
                               const std::string& directory) const {
  if (planned.many_hosts > 0)
    return RollUpManyHosts(job, SimulationOf(planned), {.hosts = planned.many_hosts, .directory = directory});
  return RecordHosts(job, SimulationOf(planned), directory);
}

// Its hub's file says when it began.
absl::Status WriteJobFile(const PlannedJob& planned, const std::string& directory, uint64_t begun_ns) {
  const absl::StatusOr<store::Directory> opened = store::Directory::Make(directory);
  if (!opened.ok()) return opened.status();
  const std::string text = absl::StrCat(planned.name, "\n", planned.attempt, "\n");
  if (absl::Status s = opened->WriteFile(store::kJobFile, text); !s.ok()) return s;
  const auto begun = std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(begun_ns));
  std::error_code error;
  fs::last_write_time(
      fs::path(directory) / store::kJobFile,
      std::chrono::time_point_cast<fs::file_time_type::duration>(std::chrono::file_clock::from_sys(begun)),
      error);
  return error ? absl::UnavailableError(absl::StrCat(directory, ": ", error.message())) : absl::OkStatus();
}

// Where a fault of one rank is.
void AddPlace(const PlannedJob& planned, Json& row) {
  const int per_host = planned.job.ranks_per_host;
  if (planned.many_hosts > 0) {  // the second host stands in the middle of the others
    row["rank"] = planned.many_hosts / 2 * per_host + planned.faulty_rank % per_host;
    return;
  }
  const std::string& host = planned.placement.hosts[static_cast<size_t>(planned.faulty_rank / per_host)];
  row["rank"] = planned.faulty_rank;
  row["host"] = host;
  row["gpu_uuid"] = GpuUuid(host, planned.placement.first_gpu + planned.faulty_rank % per_host);
}

Json DayWriter::RowOf(const PlannedJob& planned, const TruthOfJob& truth, const std::string& folder) {
  const int ranks = planned.many_hosts > 0 ? planned.many_hosts * truth.job.ranks_per_host : truth.job.ranks;
  Json row = {{"directory", folder},        {"job", planned.name},
              {"attempt", planned.attempt}, {"ranks", ranks},
              {"steps", truth.job.steps},   {"fault", std::string(NameOf(planned.fault))}};
  if (IsOfOneRank(planned.fault)) AddPlace(planned, row);
  if (planned.has_repeat_offender) row["repeat_offender"] = true;
  if (truth.step_ns > 0) row["step_ns"] = std::llround(truth.step_ns);
  if (truth.cost_ns_per_step > 0) {
    row["first_step"] = planned.from > 0 ? truth.first_step : 0;
    row["cost_ns_per_step"] = std::llround(truth.cost_ns_per_step);
  }
  const auto last = step_ns_.find(planned.name);
  if (last != step_ns_.end() && truth.step_ns > 0)
    row["percent_slower_than_last"] = 100 * (truth.step_ns / last->second - 1);
  if (planned.fault == Fault::kNone) step_ns_[planned.name] = truth.step_ns;
  return row;
}

// Without its fault a job loses less than kLeastCost to communication: else it reduces less at once. Another
// attempt does as the first.
absl::Status DayWriter::Settle(PlannedJob& planned) {
  Gradients& gradients = planned.job.gradients;
  if (const auto known = settled_.find(planned.name); known != settled_.end()) {
    gradients = known->second;
    return absl::OkStatus();
  }
  const SimulationOptions simulated = SimulationOf(planned);
  const int first = FirstMeasured(planned.job);
  for (int tries = 0; tries < kMostTries; ++tries) {
    const absl::StatusOr<StepTimes> with = TimesOf(planned.job, simulated);
    if (!with.ok()) return with.status();
    const absl::StatusOr<StepTimes> without = TimesOf(WithFreeLinks(planned.job), simulated);
    if (!without.ok()) return without.status();
    if (with->MeanNs(first) - without->MeanNs(first) < kLeastCost * with->MeanNs(first)) break;
    gradients.layer_bytes /= 2;
    gradients.bucket_bytes = std::max(gradients.bucket_bytes / 2, kMiB);
  }
  settled_[planned.name] = gradients;
  return absl::OkStatus();
}

absl::Status DayWriter::WriteJob(PlannedJob planned) {
  if (absl::Status s = Settle(planned); !s.ok()) return s;
  const uint64_t begun_ns = BeginNs(planned);
  const std::string folder = fs::path(store::DefaultRunDirectory(planned.name, begun_ns)).filename();
  const std::string directory = absl::StrCat(options_.directory, "/", folder);
  const absl::StatusOr<TruthOfJob> truth = Measure(planned);
  if (!truth.ok()) return truth.status();
  if (const absl::StatusOr<store::Directory> made = store::PrepareRunDirectory(directory); !made.ok())
    return made.status();
  if (absl::Status s = Record(planned, truth->job, directory); !s.ok()) return s;
  rows_.push_back(RowOf(planned, *truth, folder));
  return WriteJobFile(planned, directory, begun_ns);
}

absl::Status DayWriter::Write() {
  const absl::StatusOr<store::Directory> out = store::Directory::Make(options_.directory);
  if (!out.ok()) return out.status();
  if (out->FileBytes(kTruthFile) > 0)
    return absl::InvalidArgumentError(absl::StrCat(options_.directory, " holds a simulated day already"));
  for (const PlannedJob& planned : day_.jobs) {
    if (absl::Status s = WriteJob(planned); !s.ok()) return s;
  }
  const Json truth = {
      {"seed", options_.seed},
      {"hours", options_.hours},
      {"repeat_offender",
       {{"host", day_.offender_host}, {"gpu_uuid", GpuUuid(day_.offender_host, day_.offender_gpu)}}},
      {"jobs", std::move(rows_)}};
  return out->WriteFile(kTruthFile, truth.dump(1) + "\n");
}

}  // namespace

absl::Status WriteClusterDay(const ClusterOptions& options) { return DayWriter(options).Write(); }

}  // namespace gpuprobe::simulate
