// What the flight recorder adds to an event of the application's thread.
#include <benchmark/benchmark.h>

#include <string_view>

#include "injector/core/flight_recorder.h"
#include "injector/core/host_clock.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector {
namespace {

void Launch(benchmark::State& state) {
  const ThreadState& thread = CurrentThread();
  uint64_t stamp = 1;
  for (auto _ : state) RecordLaunch(thread, ++stamp);
}
BENCHMARK(Launch);

// A push and a pop: two events.
void Range(benchmark::State& state) {
  ThreadState& thread = CurrentThread();
  uint64_t stamp = 1;
  constexpr std::string_view kName = "DistributedDataParallel.forward";
  for (auto _ : state) {
    RecordRangeOpened(thread, 2, kName, ++stamp);
    thread.range_depth = 2;
    RecordRangeClosed(thread, 2, ++stamp);
  }
}
BENCHMARK(Range);

// A call's entry and return: two events.
void Call(benchmark::State& state) {
  const ThreadState& thread = CurrentThread();
  CollectiveEvent call{};
  call.comm = 1;
  call.peer = -1;
  for (auto _ : state) {
    ++call.seq;
    call.issue_ns += 2;
    call.return_ns = call.issue_ns + 1;
    RecordCallEntered(thread, call, "AllReduce");
    RecordCallLeft(thread, call, "AllReduce");
  }
}
BENCHMARK(Call);

}  // namespace
}  // namespace gpuprobe::injector
