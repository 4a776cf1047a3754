// Order and overlap: streams, the default stream, events, host functions. Times are exact wherever the
// schedule decides them.
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

class StreamTest : public NodeTest {};

// How often the node's thread of that name has gone to sleep.
long SleepsOf(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::ifstream(task.path() / "comm") >> comm;
    if (comm != name) continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      long sleeps = 0;
      if (word == "voluntary_ctxt_switches:" && status >> sleeps) return sleeps;
    }
  }
  return -1;
}

// A launch costs a program no switch to another thread on a real node.
TEST_F(StreamTest, ShortKernelsDoNotWakeTheNodeOneByOne) {
  constexpr int kLaunches = 1000;
  cudaStream_t stream = NewStream();
  Launch(Fast(), stream);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const long before = SleepsOf("gpusim-schedule");
  ASSERT_GE(before, 0);
  const uint64_t begin_ns = NowNs();
  for (int i = 0; i < kLaunches; ++i) {
    Launch(Fast(), stream);
    const uint64_t ended_ns = NowNs() + kFastNs + 5000;
    while (NowNs() < ended_ns) {
    }
  }
  const auto took_ms = static_cast<long>((NowNs() - begin_ns) / 1'000'000);
  EXPECT_LE(SleepsOf("gpusim-schedule") - before, 20 + 3 * took_ms);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), kLaunches + 1U);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, KernelsOfAStreamFollowEachOtherWithoutAGap) {
  cudaStream_t stream = NewStream();
  for (int i = 0; i < 4; ++i) Launch(Slow(), stream);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 4U);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].end_ns - kernels[i].start_ns, kSlowNs);
    if (i > 0) {
      EXPECT_EQ(kernels[i].start_ns, kernels[i - 1].end_ns);
    }
  }
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, ASynchronisationEndsOnTheWallClockAfterTheWork) {
  cudaStream_t stream = NewStream();
  const uint64_t before_ns = NowNs();
  Launch(Slow(), stream);
  EXPECT_LT(NowNs() - before_ns, kSlowNs) << "a launch does not wait";
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const uint64_t after_ns = NowNs();
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_GE(kernels[0].start_ns, before_ns);
  EXPECT_GE(after_ns, kernels[0].end_ns);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, AValueIsWrittenWhenTheStreamComesToItAndHasNoRecord) {
  cudaStream_t stream = NewStream();
  uint32_t* word = nullptr;
  ASSERT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&word), sizeof *word));
  *word = 1;
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  Launch(Slow(), stream);
  ASSERT_EQ(cuStreamWriteValue32(stream, address, 7, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(*word, 7U);
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), 1U);
  EXPECT_TRUE(Activities(ActivityKind::kMemset).empty());
  EXPECT_EQ(cuStreamWriteValue32(stream, address + 1, 7, CU_STREAM_WRITE_VALUE_DEFAULT),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cudaFreeHost(word));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, ABatchOfMemoryOperationsWritesAndWaitsInOrder) {
  cudaStream_t waiting = NewStream();
  cudaStream_t writing = NewStream();
  uint64_t* words = nullptr;
  ASSERT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&words), 2 * sizeof *words));
  words[0] = words[1] = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(words);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].waitValue = {
      CU_STREAM_MEM_OP_WAIT_VALUE_64, address, {.value64 = 5}, CU_STREAM_WAIT_VALUE_GEQ, 0};
  operations[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, address + 8, {.value64 = 9}, 0, 0};
  ASSERT_EQ(cuStreamBatchMemOp(waiting, 2, operations, 0), CUDA_SUCCESS);
  Launch(Slow(), writing);
  ASSERT_CUDA(cudaStreamSynchronize(writing));
  EXPECT_EQ(cudaStreamQuery(waiting), cudaErrorNotReady) << "nobody has written what it waits for";
  EXPECT_EQ(words[1], 0U);
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, address, {.value64 = 6}, 0, 0};
  ASSERT_EQ(cuStreamBatchMemOp(writing, 1, operations, 0), CUDA_SUCCESS);
  ASSERT_CUDA(cudaStreamSynchronize(waiting));
  EXPECT_EQ(words[1], 9U);
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), 1U) << "there is no record of memory operations";
  EXPECT_EQ(cuStreamBatchMemOp(waiting, 0, operations, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cudaFreeHost(words));
  EXPECT_CUDA(cudaStreamDestroy(waiting));
  EXPECT_CUDA(cudaStreamDestroy(writing));
}

TEST_F(StreamTest, TwoStreamsOverlap) {
  cudaStream_t a = NewStream();
  cudaStream_t b = NewStream();
  Launch(Slow(), a);
  Launch(Slow(), b);
  ASSERT_CUDA(cudaDeviceSynchronize());
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_NE(kernels[0].stream_id, kernels[1].stream_id);
  EXPECT_LT(kernels[1].start_ns, kernels[0].end_ns);
  EXPECT_CUDA(cudaStreamDestroy(a));
  EXPECT_CUDA(cudaStreamDestroy(b));
}

TEST_F(StreamTest, TheDefaultStreamWaitsForBlockingStreamsAndTheyForIt) {
  cudaStream_t a = NewStream(cudaStreamDefault);
  cudaStream_t b = NewStream(cudaStreamDefault);
  cudaStream_t apart = NewStream(cudaStreamNonBlocking);
  Launch(Slow(), a);
  Launch(Slow(), nullptr);
  Launch(Fast(), b);
  Launch(Fast(), apart);
  ASSERT_CUDA(cudaDeviceSynchronize());
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 4U);
  const Activity& outside = kernels[0];  // in order of ends
  const Activity& first = kernels[1];
  const Activity& legacy = kernels[2];
  const Activity& second = kernels[3];
  EXPECT_EQ(legacy.stream_id, 7U);
  EXPECT_EQ(legacy.start_ns, first.end_ns);
  EXPECT_EQ(second.start_ns, legacy.end_ns);
  EXPECT_LT(outside.start_ns, first.end_ns);
  for (cudaStream_t stream : {a, b, apart}) EXPECT_CUDA(cudaStreamDestroy(stream));
}

extern "C" cudaError_t cudaLaunchKernel_ptsz(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                             size_t sharedMem, cudaStream_t stream);

TEST_F(StreamTest, EveryThreadHasItsOwnDefaultStreamWhenAskedForIt) {
  const auto launch = [this] {
    static_cast<void>(this);
    EXPECT_CUDA(cudaLaunchKernel_ptsz(Slow(), dim3(1), dim3(32), nullptr, 0, nullptr));
    EXPECT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  };
  std::thread other(launch);
  launch();
  other.join();
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_NE(kernels[0].stream_id, kernels[1].stream_id);
  EXPECT_NE(kernels[0].stream_id, 7U);
  EXPECT_NE(kernels[1].stream_id, 7U);
}

TEST_F(StreamTest, AStreamWaitsForAnEventOfAnother) {
  cudaStream_t a = NewStream();
  cudaStream_t b = NewStream();
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Launch(Slow(), a);
  ASSERT_CUDA(cudaEventRecord(event, a));
  Launch(Slow(), a);  // after the record: not waited for
  ASSERT_CUDA(cudaStreamWaitEvent(b, event, 0));
  Launch(Fast(), b);
  ASSERT_CUDA(cudaDeviceSynchronize());
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_EQ(kernels[1].start_ns, kernels[0].end_ns);  // the fast one, in b
  EXPECT_NE(kernels[1].stream_id, kernels[0].stream_id);
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA(cudaStreamDestroy(a));
  EXPECT_CUDA(cudaStreamDestroy(b));
}

TEST_F(StreamTest, ElapsedTimeIsTheScheduledTime) {
  cudaStream_t stream = NewStream();
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_CUDA(cudaEventCreate(&start));
  ASSERT_CUDA(cudaEventCreate(&end));
  Launch(Slow(), stream);  // keeps the stream busy, so that enqueueing takes no part
  ASSERT_CUDA(cudaEventRecord(start, stream));
  Launch(Fast(), stream);
  Launch(Fast(), stream);
  ASSERT_CUDA(cudaEventRecord(end, stream));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  ASSERT_CUDA(cudaEventSynchronize(end));
  EXPECT_CUDA(cudaEventQuery(end));
  ASSERT_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT_FLOAT_EQ(milliseconds, static_cast<float>(2 * kFastNs) / 1e6F);
  EXPECT_CUDA(cudaEventDestroy(start));
  EXPECT_CUDA(cudaEventDestroy(end));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, EventsWithoutTimingOrRecordHaveNoElapsedTime) {
  cudaEvent_t timed = nullptr;
  cudaEvent_t untimed = nullptr;
  ASSERT_CUDA(cudaEventCreate(&timed));
  ASSERT_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaErrorInvalidResourceHandle)
      << "never recorded";
  ASSERT_CUDA(cudaEventRecord(timed, nullptr));
  ASSERT_CUDA(cudaEventRecord(untimed, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, untimed), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventDestroy(timed));
  EXPECT_CUDA(cudaEventDestroy(untimed));
}

TEST_F(StreamTest, AHostFunctionRunsInOrderAndHoldsTheStream) {
  static std::atomic<uint64_t> ran_ns{0};
  cudaStream_t stream = NewStream();
  Launch(Slow(), stream);
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* pause_ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(*static_cast<int*>(pause_ms)));
        ran_ns = NowNs();
      },
      [] {
        static int pause_ms = 2;
        return static_cast<void*>(&pause_ms);
      }()));
  Launch(Fast(), stream);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_GE(ran_ns.load(), kernels[0].end_ns + 2'000'000);
  EXPECT_GE(kernels[1].start_ns, ran_ns.load());
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, AFullStreamHoldsItsLauncher) {
  cudaStream_t stream = NewStream();
  constexpr int kLaunches = 1500;
  const uint64_t before_ns = NowNs();
  for (int i = 0; i < kLaunches; ++i) Launch(Fast(), stream);
  EXPECT_GE(NowNs() - before_ns, (kLaunches - 1100) * kFastNs);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), static_cast<size_t>(kLaunches));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, ADestroyedStreamsWorkIsStillWaitedFor) {
  cudaStream_t stream = NewStream();
  Launch(Slow(), stream);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), 1U);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_F(StreamTest, SynchronisingCallsLeaveARecordWithHostTimes) {
  cudaStream_t stream = NewStream();
  Launch(Slow(), stream);
  const uint64_t before_ns = NowNs();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<Activity> syncs = Activities(ActivityKind::kSync);
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(syncs.size(), 1U);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(syncs[0].stream_id, kernels[0].stream_id);
  EXPECT_GE(syncs[0].start_ns, before_ns);
  EXPECT_GE(syncs[0].end_ns, kernels[0].end_ns);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(StreamTest, DevicesHaveContextsOfTheirOwn) {
  Launch(Fast(), nullptr);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaSetDevice(1));
  Launch(Fast(), nullptr);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaSetDevice(0));
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].device, 0U);
  EXPECT_EQ(kernels[1].device, 1U);
  EXPECT_NE(kernels[0].context_uid, kernels[1].context_uid);
  EXPECT_EQ(cudaSetDevice(kDevices), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST_F(StreamTest, AShapeThatNoDeviceTakesIsRefused) {
  EXPECT_EQ(cudaLaunchKernel(Fast(), dim3(1), dim3(2048), nullptr, 0, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  char unknown = 0;
  EXPECT_EQ(cudaLaunchKernel(&unknown, dim3(1), dim3(32), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
}

}  // namespace
}  // namespace gpusim
