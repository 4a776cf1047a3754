// Steps and their parts in unannotated simulated jobs, against what the simulation scheduled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_replace.h"
#include "collector/framing/frame_decoder.h"
#include "collector/model/job/job_model.h"
#include "collector/simulate/scenarios.h"
#include "collector/simulate/simulation.h"

namespace gpuprobe::model {
namespace {

using simulate::DeviceWork;

constexpr uint64_t kEpoch = 1'760'000'000'000'000'000;

// What the schedule says of each rank's steps.
struct Truth : simulate::NodeObserver {
  struct Step {
    int64_t first_launch_ns = INT64_MAX;
    int64_t end_ns = 0;
  };
  void OnDeviceWork(int rank, const DeviceWork& work) override { all[rank].push_back(work); }
  // As this rank's clock shows it, from kEpoch on; and steps of it.
  void Show(int rank, simulate::RankClock clock) {
    // Set back, it shows times twice: the model's go on as if it had not been.
    clock.step_ns = std::max<int64_t>(clock.step_ns, 0);
    const auto shown = [&clock](int64_t& ns) { ns = static_cast<int64_t>(clock.Realtime(ns) - kEpoch); };
    for (DeviceWork& work : all[rank]) {
      shown(work.launch_ns);
      shown(work.start_ns);
      shown(work.end_ns);
      if (work.step < 0) continue;
      Step& step = steps[rank][work.step];
      step.first_launch_ns = std::min(step.first_launch_ns, work.launch_ns);
      step.end_ns = std::max(step.end_ns, work.end_ns);
    }
  }
  void OnHostInterval(int, simulate::HostCause, int64_t, int64_t) override {}
  void OnCall(const simulate::FinishedCall&) override {}
  void OnStep(int, int) override {}

  std::map<int, std::vector<DeviceWork>> all;
  std::map<int, std::map<int, Step>> steps;
};

struct Parts {
  int64_t compute_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_ns = 0;
  int64_t copy_ns = 0;
  int64_t idle_ns = 0;
};

// By the sorted ends of all intervals, which is not how the model does it.
Parts PartsOf(const std::vector<DeviceWork>& work, int64_t start_ns, int64_t end_ns) {
  std::vector<std::pair<int64_t, int>> changes;  // time, +-(1 + kind)
  for (const DeviceWork& w : work) {
    const int64_t from = std::max(w.start_ns, start_ns);
    const int64_t to = std::min(w.end_ns, end_ns);
    if (from >= to) continue;
    const int layer = w.kind == DeviceWork::Kind::kCollective ? 2 : w.kind == DeviceWork::Kind::kCopy ? 3 : 1;
    changes.emplace_back(from, layer);
    changes.emplace_back(to, -layer);
  }
  std::sort(changes.begin(), changes.end());
  Parts parts;
  std::array<int, 4> active{};
  int64_t at = start_ns;
  for (const auto& [time, change] : changes) {
    const int64_t length = time - at;
    if (active[1] > 0) parts.compute_ns += length;
    if (active[2] > 0) parts.comm_ns += length;
    if (active[2] > 0 && active[1] == 0) parts.exposed_ns += length;
    if (active[3] > 0 && active[2] == 0 && active[1] == 0) parts.copy_ns += length;
    if (active[1] + active[2] + active[3] == 0) parts.idle_ns += length;
    active[static_cast<size_t>(std::abs(change))] += change > 0 ? 1 : -1;
    at = time;
  }
  parts.idle_ns += end_ns - at;
  return parts;
}

class StepsOf : public ::testing::TestWithParam<std::string> {
 protected:
  void Run(const simulate::TrainingJob& job) {
    simulate::Simulation simulation(job, {}, &truth_);
    std::map<int, framing::FrameDecoder> decoders;
    std::map<int, ProcessModel*> processes;
    const absl::Status status = simulation.Run([&](int rank, int64_t, std::string_view bytes, bool) {
      framing::FrameDecoder& decoder = decoders[rank];
      decoder.Append(bytes);
      while (true) {
        const auto next = decoder.Take();
        if (!next.ok()) return next.status();
        if (!next->has_frame) return absl::OkStatus();
        v1::Frame frame;
        if (!frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size()))) {
          return absl::InternalError("frame");
        }
        if (frame.has_hello()) processes[rank] = &job_.Join(frame.hello());
        if (!frame.has_batch()) continue;
        if (absl::Status s = processes[rank]->Apply(frame.batch()); !s.ok()) return s;
      }
    });
    ASSERT_TRUE(status.ok()) << status;
    simulation_hung_ = simulation.hung();
    job_.Finish();
    for (const auto& [rank, process] : processes) {
      by_rank_[rank] = process;
      clocks_[rank] = simulation.streams()[static_cast<size_t>(rank)].description().clock;
      truth_.Show(rank, clocks_[rank]);
    }
  }

  JobModel job_;
  Truth truth_;
  bool simulation_hung_ = false;
  std::map<int, ProcessModel*> by_rank_;
  std::map<int, simulate::RankClock> clocks_;
};

TEST_P(StepsOf, AreTheSchedulesAndSoAreTheirParts) {
  const simulate::TrainingJob job = simulate::FindScenario(GetParam())->job;
  ASSERT_NO_FATAL_FAILURE(Run(job));
  const bool lossy = job.lost_share > 0;
  for (const auto& [rank, process] : by_rank_) {
    const auto& found = process->steps().steps();
    const auto& steps = truth_.steps[rank];
    // Steps by the host time of their first launch. A step in which the job hangs or ends is none.
    std::map<int64_t, int> starts;
    for (const auto& [index, step] : steps) {
      if (simulation_hung_ && index == steps.rbegin()->first) continue;
      starts[step.first_launch_ns] = index;
    }
    size_t right = 0;
    int64_t set_by_ns = 0;  // the clock, within steps
    for (const StepRecord& record : found) {
      const int64_t launch = static_cast<int64_t>(record.first_launch_ns - kEpoch);
      auto it = starts.find(launch);
      if (it == starts.end() && lossy) {
        // The step's first operation may be lost.
        it = starts.upper_bound(launch);
        if (it != starts.begin()) --it;
        if (launch - it->first > static_cast<int64_t>(record.total_ns() / 50)) it = starts.end();
      }
      if (it == starts.end()) continue;
      ++right;
      const auto& step = steps.at(it->second);
      if (!lossy) {
        const int64_t start = static_cast<int64_t>(record.start_ns - kEpoch);
        const int64_t end = static_cast<int64_t>(record.end_ns - kEpoch);
        EXPECT_EQ(end, step.end_ns) << "rank " << rank << " step " << it->second;
        const Parts parts = PartsOf(truth_.all[rank], start, end);
        EXPECT_EQ(record.compute_ns, parts.compute_ns);
        EXPECT_EQ(record.comm_ns, parts.comm_ns);
        EXPECT_EQ(record.exposed_comm_ns, parts.exposed_ns);
        EXPECT_EQ(record.copy_ns, parts.copy_ns);
        // The schedule as the rank's clock shows it has the clock's step as a pause.
        EXPECT_EQ(record.idle_ns + static_cast<uint64_t>(record.clock_step_ns), parts.idle_ns);
        set_by_ns += record.clock_step_ns;
      }
    }
    const simulate::RankClock& clock = clocks_[rank];
    if (!lossy) {
      EXPECT_EQ(set_by_ns, std::max<int64_t>(clock.step_ns, 0)) << "rank " << rank;
    }
    const double precision =
        found.empty() ? 0 : static_cast<double>(right) / static_cast<double>(found.size());
    const double recall =
        starts.empty() ? 0 : static_cast<double>(right) / static_cast<double>(starts.size());
    const double f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
    EXPECT_GE(f1, lossy ? 0.85 : 1) << "rank " << rank << ": " << found.size() << " found, " << right
                                    << " of " << starts.size() << " right, source "
                                    << static_cast<int>(process->steps().source()) << ", confidence "
                                    << process->steps().confidence() << ", warm-up "
                                    << process->steps().warmup_count();
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const simulate::Scenario& scenario : simulate::Scenarios()) {
    names.emplace_back(scenario.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Scenarios, StepsOf, ::testing::ValuesIn(Names()), [](const auto& test) {
  return absl::StrReplaceAll(test.param, {{"-", "_"}});
});

}  // namespace
}  // namespace gpuprobe::model
