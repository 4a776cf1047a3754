// Collectives in graphs: each replay is a meeting of its own.

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/sim/nccl/rank_processes.h"

namespace gpusim::nccl {
namespace {

void* const kGraphBuffer = reinterpret_cast<void*>(uint64_t{0x1000});  // NOLINT(performance-no-int-to-ptr)
constexpr int kGraphRanks = 3;
constexpr size_t kReplays = 5;

int CaptureAndReplay(int rank, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  RANK_CHECK(ncclCommInitRank(&comm, kGraphRanks, id, rank) == ncclSuccess);
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  RANK_CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             cuCtxSetCurrent(context) == CUDA_SUCCESS);
  RANK_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  RANK_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  RANK_CHECK(ncclAllReduce(kGraphBuffer, kGraphBuffer, 1000, ncclFloat, ncclSum, comm, stream) ==
             ncclSuccess);
  RANK_CHECK(ncclAllGather(kGraphBuffer, kGraphBuffer, 1000, ncclFloat, comm, stream) == ncclSuccess);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  RANK_CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  RANK_CHECK(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
  for (size_t i = 0; i < kReplays; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank));
    RANK_CHECK(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  }
  // Outside of the graph the ranks still agree on what is next.
  RANK_CHECK(ncclAllReduce(kGraphBuffer, kGraphBuffer, 1000, ncclFloat, ncclSum, comm, stream) ==
             ncclSuccess);
  RANK_CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  RANK_CHECK(ncclCommDestroy(comm) == ncclSuccess);
  return 0;
}

TEST(NcclGraphTest, RanksMeetAtEveryReplay) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const RunResult result = RunRanks(kGraphRanks, {}, [&](int rank) { return CaptureAndReplay(rank, id); });
  EXPECT_THAT(result.codes, testing::Each(0));
  for (const auto& of_rank : result.collectives) {
    ASSERT_EQ(of_rank.size(), 2 * kReplays + 1);
  }
  for (size_t i = 0; i < 2 * kReplays + 1; ++i) {
    uint64_t last_start = 0;
    for (const auto& of_rank : result.collectives) {
      last_start = std::max(last_start, of_rank[i].at("start_ns").get<uint64_t>());
      EXPECT_EQ(of_rank[i].at("end_ns"), result.collectives[0][i].at("end_ns"));
    }
    EXPECT_GT(result.collectives[0][i].at("end_ns").get<uint64_t>(), last_start);
    const bool replayed = i < 2 * kReplays;
    EXPECT_EQ(result.collectives[0][i].at("seq"), replayed ? i % 2 : 2)
        << "a replay repeats the captured number";
    EXPECT_EQ(result.collectives[0][i].value("replay", 0u), replayed ? i / 2 + 1 : 0);
  }
}

}  // namespace
}  // namespace gpusim::nccl
