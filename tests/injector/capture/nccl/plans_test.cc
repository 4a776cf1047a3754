#include "injector/capture/nccl/plans.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <vector>

#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/kernel_names.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector::nccl {
namespace {

struct Case {
  std::vector<PendingCall> calls;
  std::vector<SeenLaunch> launches;

  Case& Call(EntryPoint op, uint32_t comm, uint64_t stream, uint64_t context = 0,
             ncclDataType_t type = ncclFloat32) {
    PendingCall call{};
    call.event.op = static_cast<uint16_t>(op);
    call.event.comm = comm;
    call.event.count = 8;
    call.event.datatype = static_cast<uint8_t>(type);
    call.stream = stream;
    call.context = context;
    call.device = -1;
    call.ranks = 4;
    calls.push_back(call);
    return *this;
  }
  Case& Launch(const char* kernel, uint64_t stream, uint64_t context = 0, int32_t device = -1) {
    const KernelTraits traits = ParseKernelName(kernel);
    launches.push_back({stream, context, static_cast<uint32_t>(launches.size() + 1), traits.ops,
                        traits.datatypes, 0, 0, 0, device, 0});
    return *this;
  }
  // The last call's communicator, or the last kernel's.
  Case& CallIsOf(uint64_t on_device, uint64_t order = 0) {
    calls.back().on_device = on_device;
    calls.back().order = order;
    return *this;
  }
  Case& LaunchIsOf(uint64_t on_device) {
    launches.back().on_device = on_device;
    return *this;
  }
  void Run() {
    CallBatch batch{};
    batch.calls = calls.data();
    batch.launches = launches.data();
    batch.call_capacity = batch.call_count = static_cast<uint32_t>(calls.size());
    batch.launch_capacity = batch.launch_count = static_cast<uint32_t>(launches.size());
    AssignPlans(batch);
  }
};

constexpr const char* kAllReduceKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
constexpr const char* kAllReduceHalfKernel = "ncclDevKernel_AllReduce_Sum_f16_RING_LL";
constexpr const char* kSendRecvKernel = "ncclDevKernel_SendRecv";
constexpr const char* kAllGatherKernel = "ncclDevKernel_AllGather_RING_LL";

TEST(Plans, AKernelSaysWhereItsCommunicatorIs) {
  Case both;
  both.Call(EntryPoint::kAllReduce, 1, 7).CallIsOf(0x100).Call(EntryPoint::kAllReduce, 2, 7).CallIsOf(0x200);
  both.Launch(kAllReduceKernel, 7).LaunchIsOf(0x200).Launch(kAllReduceKernel, 7).LaunchIsOf(0x100).Run();
  EXPECT_EQ(both.launches[0].comm, 2u);
  EXPECT_EQ(both.launches[1].comm, 1u);
  // One communicator's address is not known: it gets the other kernel.
  Case one;
  one.Call(EntryPoint::kAllReduce, 1, 7).CallIsOf(0x100).Call(EntryPoint::kAllReduce, 2, 7);
  one.Launch(kAllReduceKernel, 7).LaunchIsOf(0x300).Launch(kAllReduceKernel, 7).LaunchIsOf(0x100).Run();
  EXPECT_EQ(one.launches[0].comm, 2u);
  EXPECT_EQ(one.launches[1].comm, 1u);
}

TEST(Plans, CommunicatorsThatWereNotSeenOnTheDeviceComeInTheOrderOfTheirHashes) {
  const auto first_of = [](int32_t version, uint64_t order, uint64_t other_order) {
    const int32_t before = NcclVersion();
    SetNcclVersion(version);
    Case both;
    both.Call(EntryPoint::kAllReduce, 1, 7).CallIsOf(0, order);
    both.Call(EntryPoint::kAllReduce, 2, 7).CallIsOf(0, other_order);
    both.Launch(kAllReduceKernel, 7).LaunchIsOf(0x200).Launch(kAllReduceKernel, 7).LaunchIsOf(0x100).Run();
    SetNcclVersion(before);
    EXPECT_NE(both.launches[0].comm, both.launches[1].comm);
    return both.launches[0].comm;
  };
  EXPECT_EQ(first_of(22809, 50, 40), 2u);
  EXPECT_EQ(first_of(22809, 40, 50), 1u);
  EXPECT_EQ(first_of(22809, 50, 0), 1u) << "a hash that is not NCCL's";
  EXPECT_EQ(first_of(22505, 50, 40), 1u) << "before 2.26 in the order of the calls";
}

TEST(Plans, ACallOfItsOwnHasAPlanOfItsOwn) {
  Case first;
  first.Call(EntryPoint::kAllReduce, 1, 7).Launch(kAllReduceKernel, 7).Run();
  Case second;
  second.Call(EntryPoint::kAllReduce, 1, 7).Launch(kAllReduceKernel, 7).Run();
  EXPECT_NE(first.calls[0].event.plan, 0u);
  EXPECT_EQ(first.launches[0].plan, first.calls[0].event.plan);
  EXPECT_NE(second.calls[0].event.plan, first.calls[0].event.plan);
}

TEST(Plans, CallsThatOneKernelCarriesShareIt) {
  Case group;
  for (int i = 0; i < 3; ++i) group.Call(EntryPoint::kAllReduce, 1, 7);
  group.Launch(kAllReduceKernel, 7).Run();
  EXPECT_EQ(group.calls[0].event.plan, group.calls[2].event.plan);
  EXPECT_EQ(group.launches[0].plan, group.calls[0].event.plan);
}

TEST(Plans, KernelsOfDifferentOperationsAreDifferentPlans) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7)
      .Call(EntryPoint::kAllGather, 1, 7)
      .Call(EntryPoint::kAllReduce, 1, 7);
  group.Launch(kAllReduceKernel, 7).Launch(kAllGatherKernel, 7).Run();
  EXPECT_EQ(group.calls[0].event.plan, group.calls[2].event.plan);
  EXPECT_NE(group.calls[0].event.plan, group.calls[1].event.plan);
  EXPECT_EQ(group.launches[0].plan, group.calls[0].event.plan);
  EXPECT_EQ(group.launches[1].plan, group.calls[1].event.plan);
}

TEST(Plans, OneKernelForSeveralOperationsIsOnePlan) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7).Call(EntryPoint::kAllGather, 1, 7);
  group.Launch(kAllReduceKernel, 7).Run();
  EXPECT_EQ(group.calls[0].event.plan, group.calls[1].event.plan);
}

TEST(Plans, ElementTypesTellKernelsOfOneOperationApart) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7, 0, ncclFloat16).Call(EntryPoint::kAllReduce, 1, 7, 0, ncclFloat32);
  group.Launch(kAllReduceKernel, 7).Launch(kAllReduceHalfKernel, 7).Run();
  EXPECT_EQ(group.calls[0].event.plan, group.launches[1].plan);
  EXPECT_EQ(group.calls[1].event.plan, group.launches[0].plan);
  EXPECT_NE(group.launches[0].plan, group.launches[1].plan);
}

TEST(Plans, SendsAndReceivesShareAKernel) {
  Case group;
  group.Call(EntryPoint::kSend, 1, 7).Call(EntryPoint::kRecv, 1, 7).Call(EntryPoint::kAllReduce, 1, 7);
  group.Launch(kAllReduceKernel, 7).Launch("ncclDevKernel_SendRecv", 7).Run();
  EXPECT_EQ(group.calls[0].event.plan, group.calls[1].event.plan);
  EXPECT_EQ(group.calls[0].event.plan, group.launches[1].plan);
  EXPECT_EQ(group.calls[2].event.plan, group.launches[0].plan);
}

TEST(Plans, CommunicatorsAreToldApartByStream) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7).Call(EntryPoint::kAllReduce, 2, 8);
  // Not in the order of the calls.
  group.Launch(kAllReduceKernel, 8).Launch(kAllReduceKernel, 7).Run();
  EXPECT_EQ(group.launches[0].plan, group.calls[1].event.plan);
  EXPECT_EQ(group.launches[1].plan, group.calls[0].event.plan);
}

TEST(Plans, CommunicatorsOnTheDefaultStreamAreToldApartByContext) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 0, 0x10).Call(EntryPoint::kAllReduce, 2, 0, 0x20);
  group.Launch(kAllReduceKernel, 0, 0x20).Launch(kAllReduceKernel, 0, 0x10).Run();
  EXPECT_EQ(group.launches[0].plan, group.calls[1].event.plan);
  EXPECT_EQ(group.launches[1].plan, group.calls[0].event.plan);
}

TEST(Plans, CommunicatorsOnOneStreamTakeAKernelEach) {
  Case c;
  c.Call(EntryPoint::kAllReduce, 1, 7, 0xa).Call(EntryPoint::kAllReduce, 1, 7, 0xa, ncclFloat16);
  c.Call(EntryPoint::kAllReduce, 2, 7);  // it has not launched before: its context is not known
  c.Launch(kAllReduceKernel, 7, 0xa)
      .Launch(kAllReduceHalfKernel, 7, 0xa)
      .Launch(kAllReduceKernel, 7, 0xa)
      .Run();
  EXPECT_EQ(c.launches[0].comm, 1u);
  EXPECT_EQ(c.launches[1].comm, 1u);
  EXPECT_EQ(c.launches[2].comm, 2u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(c.launches[i].plan, c.calls[i].event.plan);
}

TEST(Plans, ACommunicatorThatHasNotLaunchedYetIsKnownByItsDevice) {
  Case c;
  c.Call(EntryPoint::kAllReduce, 1, 7).Call(EntryPoint::kAllReduce, 2, 7, 0xa);
  c.Call(EntryPoint::kAllReduce, 3, 7);
  c.calls[0].device = 2;
  c.calls[2].device = 5;
  c.Launch(kAllReduceKernel, 7, 0xa, 2).Launch(kAllReduceKernel, 7, 0xa, 2);
  c.Launch(kAllReduceKernel, 7, 0xb, 5).Run();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(c.launches[i].plan, c.calls[i].event.plan) << i;
}

TEST(Plans, OperationAndTypeOfAKernelAreThoseOfOneCall) {
  Case c;
  c.Call(EntryPoint::kAllReduce, 1, 7, 0xa, ncclFloat16).Call(EntryPoint::kSend, 1, 7, 0xa, ncclFloat32);
  c.Call(EntryPoint::kAllReduce, 2, 7, 0xa, ncclFloat32);
  c.Launch(kAllReduceHalfKernel, 7, 0xa).Launch(kSendRecvKernel, 7, 0xa).Launch(kAllReduceKernel, 7, 0xa);
  c.Run();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(c.launches[i].plan, c.calls[i].event.plan) << i;
}

TEST(Plans, OneKernelMayCarryAllCallsOfEachCommunicator) {
  Case c;
  c.Call(EntryPoint::kAllReduce, 1, 7, 0xa).Call(EntryPoint::kSend, 1, 7, 0xa);
  c.Call(EntryPoint::kSend, 2, 7, 0xa).Call(EntryPoint::kRecv, 2, 7, 0xa);
  c.Launch(kAllReduceKernel, 7, 0xa).Launch(kSendRecvKernel, 7, 0xa).Run();
  EXPECT_EQ(c.calls[0].event.plan, c.launches[0].plan);
  EXPECT_EQ(c.calls[1].event.plan, c.launches[0].plan);
  EXPECT_EQ(c.calls[2].event.plan, c.launches[1].plan);
  EXPECT_EQ(c.calls[3].event.plan, c.launches[1].plan);
}

TEST(Plans, CommunicatorsThatNothingTellsApartTakeKernelsInOrder) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 0)
      .Call(EntryPoint::kAllReduce, 2, 0)
      .Call(EntryPoint::kAllReduce, 3, 0);
  for (uint64_t context = 1; context <= 3; ++context) group.Launch(kAllReduceKernel, 0, context);
  group.Run();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(group.launches[i].plan, group.calls[i].event.plan) << i;
}

TEST(Plans, AKernelOnAnotherStreamStillBelongsToTheOnlyCommunicator) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7).Call(EntryPoint::kAllReduce, 1, 8);
  group.Launch(kAllReduceKernel, 9).Run();
  EXPECT_EQ(group.launches[0].plan, group.calls[0].event.plan);
  EXPECT_EQ(group.launches[0].plan, group.calls[1].event.plan);
}

TEST(Plans, WhatLaunchesNothingHasNoPlan) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7)
      .Call(EntryPoint::kAllReduce, 1, 7)
      .Call(EntryPoint::kAllReduce, 1, 7);
  group.Call(EntryPoint::kAllReduce, 1, 7).Call(EntryPoint::kSend, 1, 7);
  group.calls[0].event.count = 0;
  group.calls[1].ranks = 1;
  group.calls[2].event.result = ncclInvalidArgument;
  group.calls[4].ranks = 1;
  group.Launch(kAllReduceKernel, 7).Run();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(group.calls[i].event.plan, 0u) << i;
  EXPECT_NE(group.calls[3].event.plan, 0u);
  EXPECT_NE(group.calls[4].event.plan, 0u) << "a rank sends to itself by a kernel";
}

TEST(Plans, CallsWhoseKernelsWereNotSeenKeepOnePlanPerCommunicator) {
  Case group;
  group.Call(EntryPoint::kAllReduce, 1, 7)
      .Call(EntryPoint::kAllGather, 1, 7)
      .Call(EntryPoint::kAllReduce, 2, 7)
      .Run();
  EXPECT_NE(group.calls[0].event.plan, 0u);
  EXPECT_EQ(group.calls[0].event.plan, group.calls[1].event.plan);
  EXPECT_NE(group.calls[0].event.plan, group.calls[2].event.plan);
}

TEST(Plans, MoreCommunicatorsThanPlacesStayWithinBounds) {
  Case group;
  for (uint32_t i = 0; i < kPlanComms * 2; ++i) group.Call(EntryPoint::kAllReduce, i + 1, i);
  for (uint32_t i = 0; i < kPlanComms * 2; ++i) group.Launch(kAllReduceKernel, i);
  group.Run();
  for (uint32_t i = 0; i + 1 < kPlanComms; ++i)
    EXPECT_EQ(group.launches[i].plan, group.calls[i].event.plan) << i;
  for (const PendingCall& call : group.calls) EXPECT_NE(call.event.plan, 0u);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
