// Decode and encode of CUPTI kernel records, buffer to sealed frame: the budget is 15 ns and 10 bytes a
// record.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "injector/capture/cupti/decoder.h"
#include "injector/core/guard.h"
#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

constexpr uint32_t kRecords = 8192;

// A training step's mix: `names` kernels with names of 60 to 200 characters, a few streams, times a few
// microseconds apart.
testing::RecordBuffer Records(const std::vector<std::string>& names) {
  testing::RecordBuffer buffer;
  uint64_t now_ns = NowNs();
  uint32_t random = 1;
  for (uint32_t i = 0; i < kRecords; ++i) {
    random = random * 1664525 + 1013904223;
    const uint64_t duration_ns = 2000 + (random >> 16) % 40000;
    auto kernel = testing::Kernel(names[(random >> 8) % names.size()].c_str(), now_ns, now_ns + duration_ns,
                                  1000 + i * 3);
    kernel.streamId = 7 + (random >> 24) % 3;
    kernel.gridX = static_cast<int32_t>(64 + (random >> 8) % names.size());
    buffer.Add(kernel);
    now_ns += duration_ns + 800;
  }
  return buffer;
}

// Reading the records and nothing else: what is left of the other figure is ours.
void WalkKernels(benchmark::State& state) {
  testing::RecordBuffer buffer = Records({"k"});
  for (auto _ : state) {
    CUpti_Activity* record = nullptr;
    uint64_t sum = 0;
    while (testing::FakeGetNextRecord(buffer.data(), buffer.size(), &record) == CUPTI_SUCCESS) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel4*>(record);
      sum += kernel->start + kernel->correlationId;
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["time/record"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kRecords,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(WalkKernels);

void DecodeAndEncodeKernels(benchmark::State& state) {
  std::vector<std::string> names;
  for (int i = 0; i < state.range(0); ++i) {
    names.push_back("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_" +
                    std::string(static_cast<size_t>(i % 140), 'x') + std::to_string(i));
  }
  testing::RecordBuffer buffer = Records(names);
  Stream stream;
  if (!stream.Init(size_t{64} << 20)) return state.SkipWithError("no memory");
  const CuptiApi api = testing::DecodingApi();
  Decoder decoder(&api, &stream);
  decoder.Init();
  uint64_t bytes = 0;
  for (auto _ : state) {
    decoder.DecodeBuffer(buffer.data(), buffer.size());
    stream.builder.Seal();
    SendQueue::Frame frame;
    while (stream.queue.Front(&frame)) {
      bytes += frame.size;
      stream.queue.Pop();
    }
  }
  const auto records = static_cast<double>(state.iterations()) * kRecords;
  // CPU time a record, in seconds (printed with its unit).
  state.counters["time/record"] =
      benchmark::Counter(records, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes/record"] = static_cast<double>(bytes) / records;
}
BENCHMARK(DecodeAndEncodeKernels)->Arg(8)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace gpuprobe::injector
