// What a record costs the collector: parsing a batch of kernels and everything the model does with it, on one
// core.
#include <benchmark/benchmark.h>

#include "collector/framing/frame_decoder.h"
#include "collector/ingest/session.h"
#include "collector/model/job/job_model.h"
#include "collector/store/run_log_writer.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe {
namespace {

using testing::BatchBuilder;
using testing::kStart;

constexpr uint64_t kRecords = 8192;
constexpr uint32_t kSites = 64;
constexpr uint64_t kKernelNs = 10'000;

// A batch as a training step gives it: 8192 kernels of 64 sites on 4 streams that overlap, with their
// launches.
std::string BatchBytes(uint64_t number, bool launches) {
  const uint64_t first = number * kRecords + 1;
  BatchBuilder b(number + 1, kStart + first * kKernelNs);
  if (number == 0) {
    b.Thread(1, true).String(kSites + 1, "step");
    for (uint32_t i = 1; i <= kSites; ++i) b.String(i, "kernel_" + std::to_string(i)).Site(i, i, 0, i % 4);
  }
  const uint64_t range = number + 1;
  for (uint64_t i = 0; i < kRecords; ++i) {
    const uint64_t start = kStart + (first + i) * kKernelNs;
    if (launches) b.Launch(1, start - 5000, first + i, range);
    // Durations vary, every eighth record comes late, as from another stream's buffer.
    const uint64_t late = i % 8 == 7 ? 3 * kKernelNs : 0;
    b.Kernel(start - late, start - late + 6000 + (i * 7919) % 6000, 1 + static_cast<uint32_t>(i % kSites),
             first + i);
  }
  if (launches)
    b.Range(range, 0, kSites + 1, 1, kStart + first * kKernelNs, kStart + (first + kRecords) * kKernelNs);
  b.Clock(kStart + (first + kRecords) * kKernelNs, (first + kRecords) * kKernelNs);
  std::string out;
  framing::AppendDelimited(b.Frame().SerializeAsString(), out);
  return out;
}

class ModelSink : public ingest::FrameSink {
 public:
  ModelSink(model::ProcessModel& process, store::RunLogWriter* log) : process_(process), log_(log) {}
  absl::Status OnBatch(const v1::Batch& batch, std::string_view raw) override {
    if (absl::Status s = process_.Apply(batch); !s.ok()) return s;
    return log_ != nullptr ? log_->Append(raw, 0) : absl::OkStatus();
  }
  void OnBye(const v1::Bye&, std::string_view) override {}
  void OnClosed(bool) override {}

 private:
  model::ProcessModel& process_;
  store::RunLogWriter* log_;
};

void Ingest(benchmark::State& state, bool launches, bool store) {
  constexpr uint64_t kBatches = 64;
  std::vector<std::string> batches;
  for (uint64_t i = 0; i < kBatches; ++i) batches.push_back(BatchBytes(i, launches));
  const std::string hello = testing::Stream({testing::HelloFrame(testing::MakeHello(0))});
  const testing::TempDir dir;
  int runs = 0;
  uint64_t records = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    model::JobModel job;
    std::unique_ptr<store::RunLogWriter> log;
    if (store)
      log = *store::RunLogWriter::Create(*store::Directory::Make(dir.path()), std::to_string(runs++), "bench",
                                         0);
    const ingest::SinkFactory factory =
        [&](const v1::Hello& h, std::string_view) -> absl::StatusOr<std::unique_ptr<ingest::FrameSink>> {
      return std::make_unique<ModelSink>(job.Join(h), log.get());
    };
    ingest::Session session(factory);
    std::string reply;
    bool good = session.Receive(hello, reply).ok();
    for (const std::string& batch : batches) {
      good = session.Receive(batch, reply).ok() && good;
      bytes += batch.size();
    }
    if (!good) state.SkipWithError("a batch was refused");
    records += kBatches * kRecords;
    benchmark::DoNotOptimize(job);
  }
  state.counters["kernels/s"] = benchmark::Counter(static_cast<double>(records), benchmark::Counter::kIsRate);
  state.counters["bytes/kernel"] = static_cast<double>(bytes) / static_cast<double>(records);
}

void IngestKernels(benchmark::State& state) { Ingest(state, false, false); }
void IngestKernelsWithLaunches(benchmark::State& state) { Ingest(state, true, false); }
void IngestKernelsWithLaunchesAndStore(benchmark::State& state) { Ingest(state, true, true); }
BENCHMARK(IngestKernels)->Unit(benchmark::kMillisecond);
BENCHMARK(IngestKernelsWithLaunches)->Unit(benchmark::kMillisecond);
BENCHMARK(IngestKernelsWithLaunchesAndStore)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpuprobe
