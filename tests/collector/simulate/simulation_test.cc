// Every scenario, from its first Hello to its last Bye, is a conversation that a collector accepts whole.
#include "collector/simulate/simulation.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "collector/framing/frame_decoder.h"
#include "collector/ingest/session.h"
#include "collector/model/job/job_model.h"
#include "collector/simulate/scenarios.h"

namespace gpuprobe::simulate {
namespace {

class ModelSink : public ingest::FrameSink {
 public:
  explicit ModelSink(model::ProcessModel& process) : process_(process) {}
  absl::Status OnBatch(const v1::Batch& batch, std::string_view) override { return process_.Apply(batch); }
  void OnBye(const v1::Bye& bye, std::string_view) override { process_.ApplyBye(bye); }
  void OnClosed(bool cut_off) override {
    if (cut_off) process_.MarkCutOff();
  }

 private:
  model::ProcessModel& process_;
};

// A collector without a socket.
class Collector {
 public:
  Collector()
      : factory_([this](const v1::Hello& hello,
                        std::string_view) -> absl::StatusOr<std::unique_ptr<ingest::FrameSink>> {
          return std::make_unique<ModelSink>(job_.Join(hello));
        }) {}

  absl::Status Receive(int rank, std::string_view bytes, bool last) {
    std::unique_ptr<ingest::Session>& session = sessions_[rank];
    if (session == nullptr) session = std::make_unique<ingest::Session>(factory_);
    std::string reply;
    absl::Status status = session->Receive(bytes, reply);
    if (last) session.reset();
    return status;
  }
  model::JobModel& job() { return job_; }

 private:
  model::JobModel job_;
  ingest::SinkFactory factory_;
  std::map<int, std::unique_ptr<ingest::Session>> sessions_;
};

class EveryScenario : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryScenario, IsAcceptedWholeAndJoinsUp) {
  const TrainingJob& job = FindScenario(GetParam())->job;
  Simulation simulation(job, {}, nullptr);
  Collector collector;
  const absl::Status status = simulation.Run([&](int rank, int64_t, std::string_view bytes, bool last) {
    return collector.Receive(rank, bytes, last);
  });
  ASSERT_TRUE(status.ok()) << status;
  collector.job().Finish();
  ASSERT_EQ(collector.job().processes().size(), static_cast<size_t>(job.ranks));
  uint64_t records = 0;
  for (const auto& process : collector.job().processes()) {
    records += process->totals().records + process->totals().host_samples;
    EXPECT_EQ(process->totals().batches_missing, 0);
    EXPECT_EQ(process->joins().unattributed, 0);
    EXPECT_EQ(process->totals().reversed_times, 0);
    const bool cut = process->end_state() == model::EndState::kCutOff;
    EXPECT_EQ(cut, simulation.hung() &&
                       !(job.memory.refuses_in_step >= 0 && process->identity().rank() == job.slow.rank));
  }
  EXPECT_EQ(records, simulation.records());
  EXPECT_EQ(simulation.hung(), job.hang.by != HangBy::kNothing || job.memory.refuses_in_step >= 0);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Scenario& scenario : Scenarios()) names.emplace_back(scenario.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Scenarios, EveryScenario, ::testing::ValuesIn(Names()), [](const auto& test) {
  return absl::StrReplaceAll(test.param, {{"-", "_"}});
});

std::string AllBytes(const TrainingJob& job, uint64_t seed) {
  std::string all;
  SimulationOptions options;
  options.seed = seed;
  Simulation simulation(job, options, nullptr);
  EXPECT_TRUE(simulation
                  .Run([&](int, int64_t, std::string_view bytes, bool) {
                    all.append(bytes);
                    return absl::OkStatus();
                  })
                  .ok());
  return all;
}

TEST(Simulation, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const TrainingJob job = FindScenario("healthy")->job;
  const std::string once = AllBytes(job, 3);
  EXPECT_EQ(once, AllBytes(job, 3));
  EXPECT_NE(once, AllBytes(job, 4));
}

TEST(Simulation, EndsWhenItsSinkDoes) {
  Simulation simulation(FindScenario("healthy")->job, {}, nullptr);
  const absl::Status status = simulation.Run([](int rank, int64_t, std::string_view, bool) {
    return rank == 3 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

struct Times : NodeObserver {
  uint64_t calls = 0;
  void OnDeviceWork(int, const DeviceWork& work) override { EXPECT_LE(work.launch_ns, work.start_ns); }
  void OnHostInterval(int, HostCause, int64_t start_ns, int64_t end_ns) override {
    EXPECT_LE(start_ns, end_ns);
  }
  void OnStep(int, int) override {}
  void OnCall(const FinishedCall& call) override {
    ++calls;
    int64_t last = 0;
    for (const auto& [rank, arrival_ns] : call.arrivals) last = std::max(last, arrival_ns);
    const int ranks = static_cast<int>(call.arrivals.size());
    EXPECT_EQ(call.end_ns - last, TransferNs(call.op, call.bytes, ranks, link));
  }
  Link link;
};

TEST(Simulation, CollectivesEndTogetherByTheRingFormulaAfterTheLastArrival) {
  for (const char* name : {"compute-bound", "fsdp", "grid"}) {
    TrainingJob job = FindScenario(name)->job;
    job.noise.calls = 0;
    Times times;
    times.link = job.link;
    Simulation simulation(job, {}, &times);
    ASSERT_TRUE(simulation.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); }).ok());
    EXPECT_GT(times.calls, 100);
  }
  // formulas.md: 2(P-1) alpha + 2(P-1)/P n/beta.
  EXPECT_EQ(TransferNs(CollectiveOp::kAllReduce, 80'000, 8, {.alpha_ns = 1000, .beta_bytes_per_ns = 10}),
            14'000 + 14'000);
  EXPECT_EQ(TransferNs(CollectiveOp::kAllGather, 80'000, 8, {.alpha_ns = 1000, .beta_bytes_per_ns = 10}),
            7'000 + 56'000);
}

}  // namespace
}  // namespace gpuprobe::simulate
