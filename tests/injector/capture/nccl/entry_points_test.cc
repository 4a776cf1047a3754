#include "injector/capture/nccl/entry_points.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <iterator>
#include <set>
#include <string>

#include "injector/capture/nccl/kernel_names.h"
#include "injector/capture/nccl/unknown_functions.h"

namespace gpuprobe::injector::nccl {
namespace {

uint16_t Bit(EntryPoint op) { return static_cast<uint16_t>(1u << static_cast<unsigned>(op)); }

TEST(EntryPoints, NamesAndSymbolsAgree) {
  for (size_t i = 0; i < kEntryPoints; ++i) {
    EXPECT_EQ(kSymbolNames[i], "nccl" + std::string(kEntryPointNames[i]));
    EXPECT_EQ(FindEntryPoint(kSymbolNames[i]), static_cast<EntryPoint>(i));
    EXPECT_EQ(FindEntryPoint(kProfilingSymbolNames[i]), static_cast<EntryPoint>(i));
  }
  EXPECT_EQ(FindEntryPoint("ncclAllReduc"), EntryPoint::kCount);
  EXPECT_EQ(FindEntryPoint("nanosleep"), EntryPoint::kCount);
  EXPECT_EQ(FindEntryPoint(""), EntryPoint::kCount);
  EXPECT_EQ(OpName(static_cast<uint16_t>(EntryPoint::kCount)), "");
}

TEST(EntryPoints, EveryFunctionOfTheHeaderIsInTheTableOrMovesNothing) {
  constexpr const char* kDeclared[] = {
#include "functions.inc"
  };
  ASSERT_GE(std::size(kDeclared), 40U);
  std::set<std::string> left_out;
  for (const std::string name : kDeclared) {
    EXPECT_FALSE(IsUnknownFunction(("nccl" + name).c_str())) << name << ": neither in the table nor harmless";
    if (FindOperation(name) == EntryPoint::kCount) left_out.insert(name);
  }
  EXPECT_EQ(left_out, (std::set<std::string>{"GetErrorString", "GetLastError", "RedOpCreatePreMulSum",
                                             "RedOpDestroy", "ResetDebugInit"}));
}

// What the header of 2.29.7 declares and that of 2.28.9 does not.
TEST(EntryPoints, WhatNewerVersionsBringIsNamedIfItMovesAnything) {
  EXPECT_TRUE(IsUnknownFunction("ncclConjure")) << "what is to come";
  for (const char* moves : {"ncclPutSignal", "ncclSignal", "ncclWaitSignal", "pncclPutSignal"}) {
    EXPECT_FALSE(IsUnknownFunction(moves)) << moves;
    EXPECT_TRUE(IsOneSided(FindEntryPoint(moves))) << moves;
  }
  for (const char* harmless : {"ncclCommGrow",
                               "ncclCommGetUniqueId",
                               "ncclCommMemStats",
                               "ncclCommQueryProperties",
                               "ncclCommResume",
                               "ncclCommSuspend",
                               "ncclDevCommCreate",
                               "ncclDevCommDestroy",
                               "ncclGetLsaDevicePointer",
                               "ncclGetLsaMultimemDevicePointer",
                               "ncclGetMultimemDevicePointer",
                               "ncclGetPeerDevicePointer",
                               "ncclGinBarrierCreateRequirement",
                               "ncclGinOutboxCreateRequirement",
                               "ncclLLA2ACalcSlots",
                               "ncclLsaBarrierCreateRequirement",
                               "ncclTeamWorld",
                               "ncclTeamRankToLsa",
                               "ncclWinGetUserPtr",
                               "ncclNetPlugin_v11",
                               "ncclTunerPlugin_v5",
                               "ncclGinPlugin_v12"})
    EXPECT_FALSE(IsUnknownFunction(harmless)) << harmless;
  EXPECT_EQ(FindEntryPoint("ncclCommGrow"), EntryPoint::kCommGrow);
}

TEST(EntryPoints, KnowsEveryDataTypeOfTheHeader) {
  for (int type = 0; type < ncclNumTypes; ++type) {
    EXPECT_NE(DataTypeName(static_cast<uint8_t>(type)), "") << type;
    EXPECT_NE(DataTypeBytes(static_cast<uint8_t>(type)), 0u) << type;
  }
  EXPECT_EQ(DataTypeName(ncclNumTypes), "");
  EXPECT_EQ(DataTypeName(ncclFloat), "float32");
  EXPECT_EQ(DataTypeBytes(ncclBfloat16), 2u);
}

TEST(KernelNames, OperationAndTypeComeFromTheName) {
  const KernelTraits mangled =
      ParseKernelName("_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
  EXPECT_EQ(mangled.ops, Bit(EntryPoint::kAllReduce));
  EXPECT_EQ(mangled.datatypes, 1u << ncclFloat32);
  const KernelTraits plain =
      ParseKernelName("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  EXPECT_EQ(plain.ops, Bit(EntryPoint::kReduceScatter));
  EXPECT_EQ(plain.datatypes, 1u << ncclBfloat16);
  EXPECT_EQ(ParseKernelName("ncclDevKernel_Broadcast_RING_LL").ops,
            Bit(EntryPoint::kBroadcast) | Bit(EntryPoint::kBcast));
  EXPECT_NE(ParseKernelName("ncclDevKernel_SendRecv").ops & Bit(EntryPoint::kAlltoAll), 0);
  EXPECT_EQ(ParseKernelName("ncclDevKernel_Generic_1").ops, kAnyOp);
  EXPECT_EQ(ParseKernelName("ncclKernel_AllReduce_RING_LL_Sum_float").ops, Bit(EntryPoint::kAllReduce));
  EXPECT_EQ(ParseKernelName("ncclSymkDevKernel_AllGather_ST").ops, Bit(EntryPoint::kAllGather));
}

TEST(KernelNames, OtherKernelsAreNotNccls) {
  for (const char* name : {"_Z6vecAddPfS_S_i", "ncclDevice", "", "_Z", "_Z999999999999nccl"}) {
    EXPECT_EQ(ParseKernelName(name).ops, 0) << name;
  }
  EXPECT_EQ(ParseKernelName(nullptr).ops, 0);
  EXPECT_TRUE(IsNcclKernel("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"));
  EXPECT_TRUE(IsNcclKernel("ncclDevKernel_SendRecv"));
  for (const char* name : {"_Z6vecAddPfS_S_i", "", "_", "_Z", "_Z12", "ncc"})
    EXPECT_FALSE(IsNcclKernel(name)) << name;
  EXPECT_FALSE(IsNcclKernel(nullptr));
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
