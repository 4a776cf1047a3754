// libnccl within one process: several devices, by one thread and by several.

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/sim/nccl/rank_processes.h"

namespace gpusim::nccl {
namespace {

using testing::Each;

void* const kBuffer = reinterpret_cast<void*>(uint64_t{0x1000});  // NOLINT(performance-no-int-to-ptr)

// A context and a stream of each device.
struct Devices {
  explicit Devices(int count) : contexts(static_cast<size_t>(count)), streams(static_cast<size_t>(count)) {
    RANK_CHECK(cuInit(0) == CUDA_SUCCESS);
    for (size_t device = 0; device < contexts.size(); ++device) {
      RANK_CHECK(cuDevicePrimaryCtxRetain(&contexts[device], static_cast<CUdevice>(device)) == CUDA_SUCCESS);
      Use(device);
      RANK_CHECK(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
  }
  void Use(size_t device) const { RANK_CHECK(cuCtxSetCurrent(contexts[device]) == CUDA_SUCCESS); }
  void Synchronize() const {
    for (size_t device = 0; device < contexts.size(); ++device) {
      Use(device);
      RANK_CHECK(cuStreamSynchronize(streams[device]) == CUDA_SUCCESS);
    }
  }
  std::vector<CUcontext> contexts;
  std::vector<CUstream> streams;
};

// The kernels of one process, one on each device, that must have ended together.
void ExpectOneMeeting(const std::vector<nlohmann::json>& collectives, size_t devices, uint64_t duration_ns) {
  ASSERT_EQ(collectives.size(), devices);
  uint64_t last = 0;
  std::vector<int> seen;
  for (const auto& line : collectives) {
    last = std::max(last, line.at("start_ns").get<uint64_t>());
    seen.push_back(line.at("device"));
    EXPECT_EQ(line.at("device"), line.at("comm_rank"));
    EXPECT_EQ(line.at("comm"), collectives.front().at("comm"));
  }
  for (const auto& line : collectives) {
    EXPECT_EQ(line.at("end_ns").get<uint64_t>(), last + duration_ns);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// AllReduce of 1000 floats over 8: 4000 * 2 * 7 / 8 bytes at 100 GB/s.
constexpr uint64_t kDurationNs = 20'000 + 70;
const std::map<std::string, std::string> kEight = {{"GPUSIM_DEVICES", "8"},
                                                   {"GPUSIM_LINK", "alpha=20us,beta=100GB/s"}};

TEST(NcclDevicesTest, InitAllDrivesEightDevicesFromOneThread) {
  const RunResult result = RunRanks(1, {.environment = kEight}, [](int) {
    const Devices devices(8);
    std::vector<ncclComm_t> comms(8);
    RANK_CHECK(ncclCommInitAll(comms.data(), 8, nullptr) == ncclSuccess);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (size_t i = 0; i < comms.size(); ++i) {
      int device = -1;
      RANK_CHECK(ncclCommCuDevice(comms[i], &device) == ncclSuccess && device == static_cast<int>(i));
      RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comms[i], devices.streams[i]) ==
                 ncclSuccess);
    }
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    devices.Synchronize();
    for (ncclComm_t comm : comms) {
      RANK_CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_THAT(result.left_behind, testing::IsEmpty());
  ExpectOneMeeting(result.collectives[0], 8, kDurationNs);
}

TEST(NcclDevicesTest, RanksAreThreads) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const RunResult result = RunRanks(1, {.environment = kEight}, [&](int) {
    const Devices devices(8);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        devices.Use(i);
        ncclComm_t comm = nullptr;
        RANK_CHECK(ncclCommInitRank(&comm, 8, id, static_cast<int>(i)) == ncclSuccess);
        RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comm, devices.streams[i]) ==
                   ncclSuccess);
        RANK_CHECK(cuStreamSynchronize(devices.streams[i]) == CUDA_SUCCESS);
        RANK_CHECK(ncclCommDestroy(comm) == ncclSuccess);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
  ExpectOneMeeting(result.collectives[0], 8, kDurationNs);
}

TEST(NcclDevicesTest, OneThreadMakesRanksInAGroupAndSplitsThem) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const RunResult result = RunRanks(1, {.environment = kEight}, [&](int) {
    const Devices devices(4);
    std::vector<ncclComm_t> comms(4);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (size_t i = 0; i < comms.size(); ++i) {
      devices.Use(i);
      RANK_CHECK(ncclCommInitRank(&comms[i], 4, id, static_cast<int>(i)) == ncclSuccess);
    }
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    std::vector<ncclComm_t> pairs(4);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (size_t i = 0; i < comms.size(); ++i) {
      RANK_CHECK(ncclCommSplit(comms[i], static_cast<int>(i / 2), 0, &pairs[i], nullptr) == ncclSuccess);
    }
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    for (size_t i = 0; i < pairs.size(); ++i) {
      int ranks = 0;
      int device = -1;
      RANK_CHECK(ncclCommCount(pairs[i], &ranks) == ncclSuccess && ranks == 2);
      RANK_CHECK(ncclCommCuDevice(pairs[i], &device) == ncclSuccess && device == static_cast<int>(i));
    }
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclDevicesTest, StreamsOfAGroupAreOrderedAroundItsKernel) {
  const RunResult result = RunRanks(1, {.environment = {{"GPUSIM_DEVICES", "2"}}}, [](int) {
    const Devices devices(2);
    std::vector<ncclComm_t> comms(2);
    RANK_CHECK(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
    devices.Use(0);
    CUstream second = nullptr;
    RANK_CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comms[0], devices.streams[0]) ==
               ncclSuccess);
    RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comms[0], second) == ncclSuccess);
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    RANK_CHECK(cuStreamQuery(second) == CUDA_ERROR_NOT_READY);
    devices.Use(1);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; ++i) {
      RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comms[1], devices.streams[1]) ==
                 ncclSuccess);
    }
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    devices.Use(0);
    RANK_CHECK(cuStreamSynchronize(second) == CUDA_SUCCESS);
    RANK_CHECK(cuStreamQuery(devices.streams[0]) == CUDA_SUCCESS);
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_EQ(result.kernels[0].size(), 2U);
}

TEST(NcclDevicesTest, SimulatedGroupTellsItsTimeAndLaunchesNothing) {
  const RunResult result = RunRanks(1, {.environment = kEight}, [](int) {
    const Devices devices(8);
    std::vector<ncclComm_t> comms(8);
    RANK_CHECK(ncclCommInitAll(comms.data(), 8, nullptr) == ncclSuccess);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    RANK_CHECK(ncclAllReduce(kBuffer, kBuffer, 1000, ncclFloat, ncclSum, comms[0], devices.streams[0]) ==
               ncclSuccess);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    RANK_CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess);
    RANK_CHECK(std::abs(info.estimatedTime - 20.07F) < 0.001F);
    devices.Synchronize();
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_THAT(result.kernels[0], testing::IsEmpty());
}

}  // namespace
}  // namespace gpusim::nccl
