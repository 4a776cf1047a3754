// The one table of NCCL's operations, and what follows from it.
#include "proto/nccl_operations.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpuprobe::nccl {
namespace {

TEST(OperationsTest, EachNameIsThereOnce) {
  std::set<std::string_view> names;
  for (const OperationFacts& facts : kOperations) EXPECT_TRUE(names.insert(facts.name).second) << facts.name;
}

TEST(OperationsTest, TheOldNameOfABroadcastIsTheSameOperation) {
  EXPECT_EQ(OperationOf("Bcast"), Operation::kBroadcast);
  EXPECT_EQ(NameOf(Operation::kBroadcast), "Broadcast");
}

TEST(OperationsTest, OfANewerOperationNothingIsAssumed) {
  const OperationFacts& facts = FactsOf("AllToAllOfTomorrow");
  EXPECT_EQ(facts.operation, Operation::kUnknown);
  EXPECT_EQ(facts.ring_rounds, 0);
  EXPECT_FALSE(facts.ends_together);
  EXPECT_FALSE(ReducesForAll("AllToAllOfTomorrow"));
  EXPECT_FALSE(IsTransfer("AllToAllOfTomorrow"));
}

TEST(OperationsTest, ASendMeetsAReceive) {
  EXPECT_TRUE(IsTransfer("Send") && IsTransfer("Recv"));
  EXPECT_FALSE(IsTransfer("SendRecv")) << "a kernel's name, no call";
  EXPECT_FALSE(IsTransfer("PutSignal"));
  EXPECT_EQ(Counterpart("Send"), "Recv");
  EXPECT_EQ(Counterpart("Recv"), "Send");
  EXPECT_TRUE(IsOneSided("PutSignal") && IsOneSided("Signal") && IsOneSided("WaitSignal"));
}

TEST(OperationsTest, CallsThatShareAKernelCarryWhatTheyAreNamedAfter) {
  EXPECT_TRUE(CarriesTransfers("Send, Recv"));
  EXPECT_TRUE(CarriesTransfers("SendRecv"));
  EXPECT_FALSE(CarriesTransfers("AllReduce, Broadcast"));
  EXPECT_FALSE(CarriesTransfers("PutSignal"));
}

TEST(OperationsTest, GradientsAreReducedByWhatGivesEachRankAPart) {
  EXPECT_TRUE(ReducesForAll("AllReduce") && ReducesForAll("ReduceScatter"));
  EXPECT_FALSE(ReducesForAll("Reduce")) << "for the root alone";
  EXPECT_FALSE(ReducesForAll("AllGather"));
}

}  // namespace
}  // namespace gpuprobe::nccl
