// What collectives leave in memory, and what they leave alone.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/sim/nccl/rank_processes.h"

namespace gpusim::nccl {
namespace {

using testing::Each;

constexpr int kMembers = 3;

void* Pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// A rank with memory of its device.
struct Member {
  Member(int own_rank, const ncclUniqueId& id) : rank(own_rank) {
    RANK_CHECK(ncclCommInitRank(&comm, kMembers, id, rank) == ncclSuccess);
    CUcontext context = nullptr;
    RANK_CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    RANK_CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    RANK_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  void* Allocate(size_t bytes) const {
    CUdeviceptr address = 0;
    RANK_CHECK(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
    return Pointer(address);
  }
  template <typename Value>
  void* On(const std::vector<Value>& values) const {
    void* memory = Allocate(values.size() * sizeof(Value));
    RANK_CHECK(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(memory), values.data(),
                            values.size() * sizeof(Value)) == CUDA_SUCCESS);
    return memory;
  }
  template <typename Value>
  std::vector<Value> From(const void* memory, size_t count) const {
    RANK_CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    std::vector<Value> values(count);
    RANK_CHECK(cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(memory), count * sizeof(Value)) ==
               CUDA_SUCCESS);
    return values;
  }
  int End() const {
    RANK_CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    RANK_CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return 0;
  }

  int rank;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
};

RunResult RunMembers(const std::function<void(const Member&)>& body) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return RunRanks(kMembers, {}, [&](int rank) {
    const Member member(rank, id);
    body(member);
    return member.End();
  });
}

// Rank r has 10r, 10r + 1, ...
std::vector<int> OwnValues(int rank, int count) {
  std::vector<int> values;
  for (int i = 0; i < count; ++i) values.push_back(10 * rank + i);
  return values;
}

using Values = std::vector<int>;

TEST(NcclBytesTest, EachOperationDeliversWhatItSays) {
  const RunResult result = RunMembers([](const Member& member) {
    const int rank = member.rank;
    void* own = member.On(OwnValues(rank, 2));
    void* own_six = member.On(OwnValues(rank, 6));
    void* out = member.On(Values(6, -1));
    const auto expect = [&](const Values& expected) {
      RANK_CHECK(member.From<int>(out, 6) == expected);
      RANK_CHECK(cuMemsetD32(reinterpret_cast<CUdeviceptr>(out), ~0U, 6) == CUDA_SUCCESS);
      RANK_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    };
    const auto on = [rank](int chosen, const Values& there) {
      return rank == chosen ? there : Values(6, -1);
    };
    ncclComm_t comm = member.comm;
    CUstream stream = member.stream;
    RANK_CHECK(ncclAllReduce(own, out, 2, ncclInt, ncclSum, comm, stream) == ncclSuccess);
    expect({30, 33, -1, -1, -1, -1});
    RANK_CHECK(ncclReduce(own, out, 2, ncclInt, ncclMax, 1, comm, stream) == ncclSuccess);
    expect(on(1, {20, 21, -1, -1, -1, -1}));
    RANK_CHECK(ncclBroadcast(own, out, 2, ncclInt, 2, comm, stream) == ncclSuccess);
    expect({20, 21, -1, -1, -1, -1});
    RANK_CHECK(ncclAllGather(own, out, 2, ncclInt, comm, stream) == ncclSuccess);
    expect({0, 1, 10, 11, 20, 21});
    RANK_CHECK(ncclReduceScatter(own_six, out, 2, ncclInt, ncclSum, comm, stream) == ncclSuccess);
    expect({30 + 6 * rank, 33 + 6 * rank, -1, -1, -1, -1});
    RANK_CHECK(ncclAlltoAll(own_six, out, 2, ncclInt, comm, stream) == ncclSuccess);
    expect({2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank, 20 + 2 * rank, 21 + 2 * rank});
    RANK_CHECK(ncclGather(own, out, 2, ncclInt, 0, comm, stream) == ncclSuccess);
    expect(on(0, {0, 1, 10, 11, 20, 21}));
    RANK_CHECK(ncclScatter(own_six, out, 2, ncclInt, 1, comm, stream) == ncclSuccess);
    expect({10 + 2 * rank, 11 + 2 * rank, -1, -1, -1, -1});
    // In place.
    RANK_CHECK(ncclBcast(own, 2, ncclInt, 2, comm, stream) == ncclSuccess);
    RANK_CHECK((member.From<int>(own, 2) == Values{20, 21}));
  });
  EXPECT_THAT(result.codes, Each(0));
}

template <typename Value>
void CheckReduction(const Member& member, ncclDataType_t type, int reduction, std::vector<Value> of_ranks,
                    Value expected) {
  void* memory = member.On(std::vector<Value>{of_ranks[static_cast<size_t>(member.rank)]});
  RANK_CHECK(ncclAllReduce(memory, memory, 1, type, static_cast<ncclRedOp_t>(reduction), member.comm,
                           member.stream) == ncclSuccess);
  const Value result = member.From<Value>(memory, 1)[0];
  using Bytes = std::array<char, sizeof(Value)>;
  RANK_CHECK(std::bit_cast<Bytes>(result) == std::bit_cast<Bytes>(expected));
}

TEST(NcclBytesTest, ReductionsFollowTheirTypes) {
  const RunResult result = RunMembers([](const Member& member) {
    CheckReduction<int8_t>(member, ncclInt8, ncclMin, {3, -5, 4}, -5);
    CheckReduction<uint8_t>(member, ncclUint8, ncclSum, {100, 100, 100}, 44);
    CheckReduction<uint32_t>(member, ncclUint32, ncclMax, {1, 0xfffffff0, 7}, 0xfffffff0);
    // More digits than a double has.
    CheckReduction<int64_t>(member, ncclInt64, ncclSum, {int64_t{1} << 60, 1, 1}, (int64_t{1} << 60) + 2);
    CheckReduction<float>(member, ncclFloat, ncclAvg, {1.0F, 2.0F, 4.5F}, 2.5F);
    CheckReduction<double>(member, ncclDouble, ncclProd, {2.0, 3.0, 0.25}, 1.5);
    CheckReduction<__half>(member, ncclHalf, ncclSum, {__float2half(1), __float2half(2), __float2half(4)},
                           __float2half(7));
    CheckReduction<__nv_bfloat16>(member, ncclBfloat16, ncclMax,
                                  {__float2bfloat16(1), __float2bfloat16(-2), __float2bfloat16(4)},
                                  __float2bfloat16(4));
    float half = 0.5F;
    ncclRedOp_t scaled = ncclSum;
    RANK_CHECK(ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat, ncclScalarHostImmediate, member.comm) ==
               ncclSuccess);
    CheckReduction<float>(member, ncclFloat, scaled, {1.0F, 2.0F, 4.0F}, 3.5F);
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclBytesTest, MessagesArriveInTheirOrder) {
  const RunResult result = RunMembers([](const Member& member) {
    const int next = (member.rank + 1) % kMembers;
    const int previous = (member.rank + kMembers - 1) % kMembers;
    void* own = member.On(OwnValues(member.rank, 2));
    void* out = member.On(Values(2, -1));
    const auto second = [](void* memory) { return static_cast<char*>(memory) + sizeof(int); };
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    RANK_CHECK(ncclSend(own, 1, ncclInt, next, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(ncclSend(second(own), 1, ncclInt, next, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(ncclRecv(out, 1, ncclInt, previous, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(ncclRecv(second(out), 1, ncclInt, previous, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    RANK_CHECK(member.From<int>(out, 2) == OwnValues(previous, 2));
    // More than there are slots for.
    for (int i = 0; i < 100; ++i) {
      RANK_CHECK(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(own), static_cast<unsigned>(i), 1,
                                  member.stream) == CUDA_SUCCESS);
      if (member.rank == 0) {
        RANK_CHECK(ncclSend(own, 1, ncclInt, 1, member.comm, member.stream) == ncclSuccess);
      } else if (member.rank == 1) {
        RANK_CHECK(ncclRecv(out, 1, ncclInt, 0, member.comm, member.stream) == ncclSuccess);
        RANK_CHECK(member.From<int>(out, 1)[0] == i);
      }
    }
  });
  EXPECT_THAT(result.codes, Each(0));
}

void CUDA_CB Sleep(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(NcclBytesTest, BytesAreThoseOfTheMomentWhenTheStreamIsThere) {
  const RunResult result = RunMembers([](const Member& member) {
    void* own = member.On(Values{-1});
    const auto address = reinterpret_cast<CUdeviceptr>(own);
    const auto value = static_cast<unsigned>(member.rank);
    void* out = member.Allocate(sizeof(int));
    RANK_CHECK(cuLaunchHostFunc(member.stream, Sleep, nullptr) == CUDA_SUCCESS);
    RANK_CHECK(cuMemsetD32Async(address, value + 1, 1, member.stream) == CUDA_SUCCESS);
    RANK_CHECK(ncclAllReduce(own, out, 1, ncclInt, ncclSum, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(cuMemsetD32Async(address, 1000, 1, member.stream) == CUDA_SUCCESS);
    RANK_CHECK(member.From<int>(out, 1)[0] == 6);
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclBytesTest, AReplayMovesWhatIsThereThen) {
  const RunResult result = RunMembers([](const Member& member) {
    void* memory = member.On(Values{1});
    RANK_CHECK(cuStreamBeginCapture(member.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    RANK_CHECK(ncclAllReduce(memory, memory, 1, ncclInt, ncclSum, member.comm, member.stream) == ncclSuccess);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    RANK_CHECK(cuStreamEndCapture(member.stream, &graph) == CUDA_SUCCESS);
    RANK_CHECK(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    for (int i = 0; i < 4; ++i) RANK_CHECK(cuGraphLaunch(exec, member.stream) == CUDA_SUCCESS);
    RANK_CHECK(member.From<int>(memory, 1)[0] == 81);
  });
  EXPECT_THAT(result.codes, Each(0));
}

size_t TouchedPages(void* memory, size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  RANK_CHECK(mincore(memory, bytes, pages.data()) == 0);
  return static_cast<size_t>(std::count(pages.begin(), pages.end(), 1));
}

TEST(NcclBytesTest, MemoryThatNobodyWroteCostsNothing) {
  const RunResult result = RunMembers([](const Member& member) {
    constexpr size_t kBytes = 64 << 20;
    void* from = member.Allocate(kBytes);
    void* to = member.Allocate(kBytes);
    for (const size_t bytes : {size_t{256} << 10, kBytes}) {
      RANK_CHECK(ncclAllReduce(from, to, bytes, ncclInt8, ncclSum, member.comm, member.stream) ==
                 ncclSuccess);
      RANK_CHECK(cuStreamSynchronize(member.stream) == CUDA_SUCCESS);
    }
    RANK_CHECK(TouchedPages(from, kBytes) == 0);
    RANK_CHECK(TouchedPages(to, kBytes) == 0);
    // Zeros arrive where something else was.
    void* written = member.On(Values{1, 2, 3, 4});
    RANK_CHECK(ncclBroadcast(from, written, 3, ncclInt, 0, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK((member.From<int>(written, 4) == Values{0, 0, 0, 4}));
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclBytesTest, ARankMayEndAsSoonAsItsOwnKernelHas) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const RunResult result = RunRanks(kMembers, {}, [&](int rank) {
    const Member member(rank, id);
    void* memory = member.On(Values(1000, rank == 0 ? 42 : 0));
    RANK_CHECK(ncclBcast(memory, 1000, ncclInt, 0, member.comm, member.stream) == ncclSuccess);
    RANK_CHECK(cuStreamSynchronize(member.stream) == CUDA_SUCCESS);
    if (rank == 0) _exit(0);
    RANK_CHECK(member.From<int>(memory, 1000) == Values(1000, 42));
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
}

TEST(NcclBytesTest, DevicesOfOneProcessExchangeTheirBytes) {
  const RunResult result = RunRanks(1, {.environment = {{"GPUSIM_DEVICES", "2"}}}, [](int) {
    RANK_CHECK(cuInit(0) == CUDA_SUCCESS);
    ncclComm_t comms[2];
    RANK_CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
    CUcontext contexts[2];
    CUstream streams[2];
    CUdeviceptr memory[2];
    for (int device = 0; device < 2; ++device) {
      RANK_CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device) == CUDA_SUCCESS);
      RANK_CHECK(cuCtxSetCurrent(contexts[device]) == CUDA_SUCCESS);
      RANK_CHECK(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
      RANK_CHECK(cuMemAlloc(&memory[device], sizeof(int)) == CUDA_SUCCESS);
      RANK_CHECK(cuMemsetD32(memory[device], static_cast<unsigned>(device) + 1, 1) == CUDA_SUCCESS);
      RANK_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    }
    RANK_CHECK(ncclGroupStart() == ncclSuccess);
    for (int device = 0; device < 2; ++device) {
      RANK_CHECK(ncclAllReduce(Pointer(memory[device]), Pointer(memory[device]), 1, ncclInt, ncclSum,
                               comms[device], streams[device]) == ncclSuccess);
    }
    RANK_CHECK(ncclGroupEnd() == ncclSuccess);
    for (int device = 0; device < 2; ++device) {
      RANK_CHECK(cuCtxSetCurrent(contexts[device]) == CUDA_SUCCESS);
      RANK_CHECK(cuStreamSynchronize(streams[device]) == CUDA_SUCCESS);
      int value = 0;
      RANK_CHECK(cuMemcpyDtoH(&value, memory[device], sizeof value) == CUDA_SUCCESS);
      RANK_CHECK(value == 3);
    }
    return 0;
  });
  EXPECT_THAT(result.codes, Each(0));
}

}  // namespace
}  // namespace gpusim::nccl
