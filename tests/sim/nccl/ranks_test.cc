// libnccl across processes: who meets whom, and when everything ends.

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/sim/nccl/operations.h"
#include "tests/sim/nccl/rank_processes.h"

namespace gpusim::nccl {
namespace {

using testing::Each;
using testing::IsEmpty;

constexpr uint64_t kAlphaNs = 20'000;
constexpr double kBeta = 100e9;
const std::map<std::string, std::string> kLink = {{"GPUSIM_LINK", "alpha=20us,beta=100GB/s"}};

void* Address(uint64_t value) { return reinterpret_cast<void*>(value); }  // NOLINT(performance-no-int-to-ptr)
void* const kRanksBuffer = Address(0x1000);

void Pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// One rank: the world's communicator and a stream.
struct Rank {
  Rank(int own_rank, int own_ranks, const ncclUniqueId& id) : rank(own_rank), ranks(own_ranks) {
    RANK_CHECK(ncclCommInitRank(&comm, ranks, id, rank) == ncclSuccess);
    CUcontext context = nullptr;
    RANK_CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    RANK_CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    RANK_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  void AllReduce(size_t count, ncclDataType_t type = ncclFloat, ncclComm_t on = nullptr) const {
    RANK_CHECK(ncclAllReduce(kRanksBuffer, kRanksBuffer, count, type, ncclSum, on == nullptr ? comm : on,
                             stream) == ncclSuccess);
  }
  void Synchronize() const { RANK_CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS); }
  int End() const {
    Synchronize();
    RANK_CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return 0;
  }

  int rank;
  int ranks;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
};

ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

uint64_t Start(const nlohmann::json& line) { return line.at("start_ns"); }
uint64_t End(const nlohmann::json& line) { return line.at("end_ns"); }

class RanksTest : public testing::TestWithParam<int> {};

TEST_P(RanksTest, CollectivesEndTogetherAndTheirBusBandwidthIsTheLinks) {
  const int ranks = GetParam();
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(ranks, {.environment = kLink}, [&](int number) {
    const Rank rank(number, ranks, id);
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{25} << 18}) {
      Pause(3 * ((number + 1) % ranks));
      rank.AllReduce(count);
      RANK_CHECK(ncclAllGather(kRanksBuffer, kRanksBuffer, count, ncclBfloat16, rank.comm, rank.stream) ==
                 ncclSuccess);
      RANK_CHECK(ncclReduceScatter(kRanksBuffer, kRanksBuffer, count, ncclHalf, ncclMax, rank.comm,
                                   rank.stream) == ncclSuccess);
      RANK_CHECK(ncclBroadcast(kRanksBuffer, kRanksBuffer, count, ncclInt8, 0, rank.comm, rank.stream) ==
                 ncclSuccess);
      RANK_CHECK(ncclBcast(kRanksBuffer, count, ncclInt8, ranks - 1, rank.comm, rank.stream) == ncclSuccess);
      RANK_CHECK(ncclReduce(kRanksBuffer, kRanksBuffer, count, ncclDouble, ncclAvg, 0, rank.comm,
                            rank.stream) == ncclSuccess);
      RANK_CHECK(ncclAlltoAll(kRanksBuffer, kRanksBuffer, count, ncclFloat, rank.comm, rank.stream) ==
                 ncclSuccess);
      RANK_CHECK(ncclGather(kRanksBuffer, kRanksBuffer, count, ncclFloat, 0, rank.comm, rank.stream) ==
                 ncclSuccess);
      RANK_CHECK(ncclScatter(kRanksBuffer, kRanksBuffer, count, ncclFloat, 0, rank.comm, rank.stream) ==
                 ncclSuccess);
    }
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_THAT(result.left_behind, IsEmpty());
  struct Expected {
    const char* op;
    double size_factor;  // bytes on the bus per count, of nccl-tests
  };
  const double n = ranks;
  const Expected expected[] = {{"AllReduce", 4 * 2 * (n - 1) / n},
                               {"AllGather", 2 * n * (n - 1) / n},
                               {"ReduceScatter", 2 * n * (n - 1) / n},
                               {"Broadcast", 1},
                               {"Broadcast", 1},
                               {"Reduce", 8},
                               {"AlltoAll", 4 * n * (n - 1) / n},
                               {"Gather", 4 * n * (n - 1) / n},
                               {"Scatter", 4 * n * (n - 1) / n}};
  for (const auto& of_rank : result.collectives) {
    ASSERT_EQ(of_rank.size(), 27U);
  }
  for (size_t i = 0; i < 27; ++i) {
    uint64_t last_start = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      last_start = std::max(last_start, Start(result.collectives[static_cast<size_t>(rank)][i]));
    }
    const double count = result.collectives[0][i].at("count");
    const auto transfer =
        static_cast<uint64_t>(std::llround(expected[i % 9].size_factor * count / kBeta * 1e9));
    for (int rank = 0; rank < ranks; ++rank) {
      const nlohmann::json& line = result.collectives[static_cast<size_t>(rank)][i];
      EXPECT_EQ(line.at("op"), expected[i % 9].op);
      EXPECT_EQ(line.at("seq"), i);
      EXPECT_EQ(line.at("comm"), result.collectives[0][i].at("comm"));
      EXPECT_EQ(line.at("comm_rank"), rank);
      EXPECT_EQ(line.at("comm_ranks"), ranks);
      EXPECT_EQ(End(line), last_start + kAlphaNs + transfer) << line;
      EXPECT_LE(line.at("issue_ns"), Start(line));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, testing::Values(2, 3, 4));

TEST(NcclTest, TheKernelIsTheRealLibrarysByName) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(2, {}, [&](int number) {
    const Rank rank(number, 2, id);
    rank.AllReduce(100);
    return rank.End();
  });
  ASSERT_EQ(result.kernels[1].size(), 1U);
  EXPECT_EQ(result.kernels[1][0].at("name"),
            "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
  EXPECT_EQ(Start(result.kernels[1][0]), Start(result.collectives[1][0]));
  EXPECT_EQ(End(result.kernels[1][0]), End(result.collectives[1][0]));
}

TEST(NcclTest, CallsOfOneKindInAGroupShareAKernel) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(2, {.environment = kLink}, [&](int number) {
    const Rank rank(number, 2, id);
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (const size_t count : {1000U, 4000U, 2000U}) {
      rank.AllReduce(count);
    }
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    rank.AllReduce(500, ncclDouble);
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    RANK_CHECK(ncclSend(kRanksBuffer, 10, ncclFloat, 1 - number, rank.comm, rank.stream) == ncclSuccess);
    RANK_CHECK(ncclRecv(kRanksBuffer, 10, ncclFloat, 1 - number, rank.comm, rank.stream) == ncclSuccess);
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  for (int rank = 0; rank < 2; ++rank) {
    const auto& lines = result.collectives[static_cast<size_t>(rank)];
    EXPECT_EQ(result.kernels[static_cast<size_t>(rank)].size(), 3U);
    ASSERT_EQ(lines.size(), 6U);
    std::map<uint64_t, std::vector<nlohmann::json>> plans;
    for (const auto& line : lines) {
      plans[line.at("plan").get<uint64_t>()].push_back(line);
    }
    ASSERT_EQ(plans.size(), 3U);
    auto plan = plans.begin();
    ASSERT_EQ(plan->second.size(), 3U);
    // n = 2: the factor of AllReduce is 1.
    const uint64_t last = std::max(Start(result.collectives[0][0]), Start(result.collectives[1][0]));
    for (const auto& line : plan->second) {
      EXPECT_EQ(End(line), last + kAlphaNs + static_cast<uint64_t>(std::llround(7000 * 4 / kBeta * 1e9)));
    }
    EXPECT_EQ(plan->second[0].at("count"), 4000) << "the largest first";
    EXPECT_EQ((++plan)->second[0].at("datatype"), "float64");
    EXPECT_EQ((++plan)->second.size(), 2U);
    EXPECT_EQ(plan->second[0].at("seq").get<int>() + plan->second[1].at("seq").get<int>(), 1)
        << "numbered apart";
  }
}

TEST(NcclTest, ARingOfSendsAndReceivesMatchesPairwise) {
  constexpr int kRanks = 4;
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(kRanks, {.environment = kLink}, [&](int number) {
    const Rank rank(number, kRanks, id);
    for (int round = 0; round < 40; ++round) {  // more than the slots of a pair
      if (round == 7) {
        Pause(5 * number);
      }
      RANK_CHECK(ncclGroupStart() == ncclSuccess);
      RANK_CHECK(ncclSend(kRanksBuffer, 1000, ncclFloat, (number + 1) % kRanks, rank.comm, rank.stream) ==
                 ncclSuccess);
      RANK_CHECK(ncclRecv(kRanksBuffer, 1000, ncclFloat, (number + kRanks - 1) % kRanks, rank.comm,
                          rank.stream) == ncclSuccess);
      RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    }
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  const auto transfer = static_cast<uint64_t>(std::llround(2 * 4000 / kBeta * 1e9));
  for (size_t round = 0; round < 40; ++round) {
    for (int rank = 0; rank < kRanks; ++rank) {
      uint64_t last = 0;
      for (const int of : {rank, (rank + 1) % kRanks, (rank + kRanks - 1) % kRanks}) {
        ASSERT_EQ(result.kernels[static_cast<size_t>(of)].size(), 40U);
        last = std::max(last, Start(result.kernels[static_cast<size_t>(of)][round]));
      }
      EXPECT_EQ(End(result.kernels[static_cast<size_t>(rank)][round]), last + kAlphaNs + transfer);
    }
  }
}

TEST(NcclTest, MoreCollectivesThanSlotsStayInOrder) {
  constexpr int kCalls = 700;
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(2, {}, [&](int number) {
    const Rank rank(number, 2, id);
    for (int i = 0; i < kCalls; ++i) {
      rank.AllReduce(16);
    }
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  ASSERT_EQ(result.collectives[0].size(), static_cast<size_t>(kCalls));
  for (size_t i = 0; i < kCalls; ++i) {
    ASSERT_EQ(result.collectives[0][i].at("seq"), i);
    ASSERT_EQ(End(result.collectives[0][i]), End(result.collectives[1][i]));
  }
}

// The answers are those of NCCL 2.30.7 for the same id and children.
TEST(NcclTest, CommunicatorsHaveTheNamesThatTheLogOfARealOnePrints) {
  ncclUniqueId id;
  for (size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(3 * i);
  }
  const RunResult result = RunRanks(2, {}, [&](int number) {
    Rank rank(number, 2, id);
    rank.AllReduce(1);
    ncclComm_t first = nullptr;
    ncclComm_t second = nullptr;
    RANK_CHECK(ncclCommSplit(rank.comm, 0, 0, &first, nullptr) == ncclSuccess);
    RANK_CHECK(ncclCommSplit(rank.comm, 5, 0, &second, nullptr) == ncclSuccess);
    RANK_CHECK(ncclAllReduce(kRanksBuffer, kRanksBuffer, 1, ncclFloat, ncclSum, second, rank.stream) ==
               ncclSuccess);
    RANK_CHECK(cuStreamSynchronize(rank.stream) == CUDA_SUCCESS);
    RANK_CHECK(ncclCommDestroy(first) == ncclSuccess && ncclCommDestroy(second) == ncclSuccess);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  for (const auto& of_rank : result.collectives) {
    ASSERT_EQ(of_rank.size(), 2U);
    EXPECT_EQ(of_rank[0].at("comm"), "02a317527ae16c9a");
    EXPECT_EQ(of_rank[1].at("comm"), "87947d26bf3fd539");
  }
}

TEST(NcclTest, SplitMakesOneCommunicatorPerColorOrderedByKey) {
  constexpr int kRanks = 4;
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(kRanks, {}, [&](int number) {
    const Rank rank(number, kRanks, id);
    ncclComm_t half = nullptr;
    RANK_CHECK(ncclCommSplit(rank.comm, number % 2, -number, &half, nullptr) == ncclSuccess);
    int size = 0;
    int own = -1;
    RANK_CHECK(ncclCommCount(half, &size) == ncclSuccess && size == 2);
    RANK_CHECK(ncclCommUserRank(half, &own) == ncclSuccess && own == (number < 2 ? 1 : 0));
    rank.AllReduce(10, ncclFloat, half);
    ncclComm_t none = nullptr;
    const int color = number == 0 ? NCCL_SPLIT_NOCOLOR : 5;
    RANK_CHECK(ncclCommSplit(rank.comm, color, 0, &none, nullptr) == ncclSuccess);
    RANK_CHECK((none == nullptr) == (number == 0));
    if (none != nullptr) {
      rank.AllReduce(10, ncclFloat, none);
      RANK_CHECK(ncclCommDestroy(none) == ncclSuccess);
    }
    RANK_CHECK(ncclCommDestroy(half) == ncclSuccess);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_THAT(result.left_behind, IsEmpty());
  const auto comm = [&](size_t rank, size_t call) { return result.collectives[rank].at(call).at("comm"); };
  EXPECT_EQ(comm(0, 0), comm(2, 0));
  EXPECT_EQ(comm(1, 0), comm(3, 0));
  EXPECT_NE(comm(0, 0), comm(1, 0));
  EXPECT_EQ(comm(1, 1), comm(2, 1));
  EXPECT_EQ(result.collectives[0].size(), 1U);
  EXPECT_EQ(result.collectives[1][1].at("comm_ranks"), 3);
}

TEST(NcclTest, ShrinkLeavesOutRanks) {
  constexpr int kRanks = 3;
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(kRanks, {}, [&](int number) {
    const Rank rank(number, kRanks, id);
    if (number == 1) {
      return rank.End();
    }
    int gone = 1;
    ncclComm_t rest = nullptr;
    RANK_CHECK(ncclCommShrink(rank.comm, &gone, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT) == ncclSuccess);
    int own = -1;
    RANK_CHECK(ncclCommUserRank(rest, &own) == ncclSuccess && own == (number == 0 ? 0 : 1));
    rank.AllReduce(10, ncclFloat, rest);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_EQ(result.collectives[0].at(0).at("comm_ranks"), 2);
  EXPECT_EQ(result.collectives[0].at(0).at("comm"), result.collectives[2].at(0).at("comm"));
}

TEST(NcclTest, NonBlockingInitIsInProgressUntilAllAreThere) {
  const ncclUniqueId id = NewId();
  // Rank 1 comes only when rank 0 has seen that it waits.
  auto* const seen_in_progress = static_cast<std::atomic<bool>*>(
      mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(seen_in_progress, MAP_FAILED);
  const RunResult result = RunRanks(2, {}, [&](int number) {
    while (number == 1 && !*seen_in_progress) {
      Pause(1);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    RANK_CHECK(ncclCommInitRankConfig(&comm, 2, id, number, &config) == ncclInProgress);
    ncclResult_t state = ncclSuccess;
    int count = 0;
    RANK_CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    RANK_CHECK(number == 1 || (state == ncclInProgress && ncclCommCount(comm, &count) != ncclSuccess));
    *seen_in_progress = true;
    while (state == ncclInProgress) {
      Pause(1);
      RANK_CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    }
    RANK_CHECK(state == ncclSuccess && ncclCommCount(comm, &count) == ncclSuccess && count == 2);
    return 0;
  });
  munmap(seen_in_progress, sizeof(std::atomic<bool>));
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclTest, ARankThatHangsIsWaitedFor) {
  const ncclUniqueId id = NewId();
  std::map<std::string, std::string> environment = kLink;
  environment["GPUSIM_HANG"] = "rank=1,call=2";
  const RunResult result = RunRanks(2, {.environment = environment, .seconds = 3}, [&](int number) {
    const Rank rank(number, 2, id);
    for (int i = 0; i < 4; ++i) {
      rank.AllReduce(100);
    }
    rank.Synchronize();
    return 0;
  });
  EXPECT_THAT(result.codes, Each(-SIGKILL));
  EXPECT_EQ(result.collectives[0].size(), 2U);
  EXPECT_EQ(result.collectives[1].size(), 2U);
}

TEST(NcclTest, AbortEndsWhatWaits) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(2, {}, [&](int number) {
    const Rank rank(number, 2, id);
    if (number == 1) {
      Pause(300);
      return 0;
    }
    rank.AllReduce(100);
    Pause(50);
    RANK_CHECK(cuStreamQuery(rank.stream) == CUDA_ERROR_NOT_READY);
    RANK_CHECK(ncclCommAbort(rank.comm) == ncclSuccess);
    rank.Synchronize();
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclTest, AKilledRankIsARemoteErrorAndNothingElse) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(3, {}, [&](int number) {
    const Rank rank(number, 3, id);
    rank.AllReduce(100);
    rank.Synchronize();
    if (number == 2) {
      raise(SIGKILL);
    }
    rank.AllReduce(100);
    ncclResult_t state = ncclSuccess;
    // The test's process has to reap it before it is gone.
    for (int i = 0; i < 2000 && state == ncclSuccess; ++i) {
      Pause(1);
      RANK_CHECK(ncclCommGetAsyncError(rank.comm, &state) == ncclSuccess);
    }
    RANK_CHECK(state == ncclRemoteError);
    RANK_CHECK(ncclCommAbort(rank.comm) == ncclSuccess);
    rank.Synchronize();
    return 0;
  });
  EXPECT_THAT(result.codes, testing::ElementsAre(0, 0, -SIGKILL));
  EXPECT_THAT(result.left_behind, IsEmpty());
}

TEST(NcclTest, OneRankCopiesOrDoesNothing) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(1, {}, [&](int) {
    const Rank rank(0, 1, id);
    CUdeviceptr a = 0;
    CUdeviceptr b = 0;
    RANK_CHECK(cuMemAlloc(&a, 4096) == CUDA_SUCCESS && cuMemAlloc(&b, 4096) == CUDA_SUCCESS);
    RANK_CHECK(ncclAllReduce(Address(a), Address(b), 1024, ncclFloat, ncclSum, rank.comm, rank.stream) ==
               ncclSuccess);
    rank.AllReduce(1024);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  EXPECT_THAT(result.kernels[0], IsEmpty());
  ASSERT_EQ(result.unlaunched[0].size(), 2U);
  EXPECT_EQ(result.unlaunched[0][1].at("seq"), 1);
}

TEST(NcclTest, NothingIsLaunchedForNoElements) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(2, {}, [&](int number) {
    const Rank rank(number, 2, id);
    rank.AllReduce(0);
    rank.AllReduce(1);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  ASSERT_EQ(result.collectives[0].size(), 1U);
  EXPECT_EQ(result.collectives[0][0].at("seq"), 1);
  ASSERT_EQ(result.unlaunched[0].size(), 1U);
  EXPECT_EQ(result.unlaunched[0][0].at("seq"), 0);
}

TEST(NcclTest, BadArgumentsAreRefused) {
  const ncclUniqueId id = NewId();
  const RunResult result = RunRanks(1, {}, [&](int) {
    const Rank rank(0, 1, id);
    ncclComm_t none = nullptr;
    RANK_CHECK(ncclCommInitRank(&none, 2, id, 2) == ncclInvalidArgument);
    RANK_CHECK(ncclAllReduce(kRanksBuffer, kRanksBuffer, 1, ncclNumTypes, ncclSum, rank.comm, rank.stream) ==
               ncclInvalidArgument);
    RANK_CHECK(std::strstr(ncclGetLastError(rank.comm), "ncclAllReduce") != nullptr);
    RANK_CHECK(ncclBroadcast(kRanksBuffer, kRanksBuffer, 1, ncclFloat, 1, rank.comm, rank.stream) ==
               ncclInvalidArgument);
    RANK_CHECK(ncclSend(kRanksBuffer, 1, ncclFloat, 1, rank.comm, rank.stream) == ncclInvalidArgument);
    RANK_CHECK(ncclAllReduce(kRanksBuffer, kRanksBuffer, 1, ncclFloat, ncclSum, nullptr, rank.stream) ==
               ncclInvalidArgument);
    RANK_CHECK(ncclGroupEnd() == ncclInvalidUsage);
    int version = 0;
    RANK_CHECK(ncclGetVersion(&version) == ncclSuccess && version == 22809);
    return rank.End();
  });
  EXPECT_THAT(result.codes, Each(0));
  ASSERT_EQ(result.unlaunched[0].size(), 3U) << "those that have a communicator";
  for (const auto& call : result.unlaunched[0]) {
    EXPECT_EQ(call.at("result"), static_cast<int>(ncclInvalidArgument));
    EXPECT_EQ(call.at("seq"), 0) << "they do not count";
  }
}

}  // namespace
}  // namespace gpusim::nccl
