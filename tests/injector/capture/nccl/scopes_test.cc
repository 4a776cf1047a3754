// What a call into NCCL becomes, through the generated wrappers, with a stand-in library behind them.
#include "injector/capture/nccl/scopes.h"

#include <dlfcn.h>

#include <map>
#include <string>

#include "injector/base/losses.h"
#include "injector/capture/nccl/captured_nodes.h"
#include "injector/capture/nccl/wrappers.h"
#include "injector/core/guard.h"
#include "injector/core/host_state.h"
#include "tests/injector/capture/nccl/fake_nccl.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

using Nccl = Wrappers<kFirstProviderWay>;

uint32_t next_correlation = 0;
uint64_t on_device = 0;              // not 0: the first argument of what NCCL launches
constexpr uint64_t kGraph = 0x6000;  // its handle
uint64_t captured_node = 0;          // not 0: what NCCL launches is captured into this node of a graph

// What CUPTI's callback would do when a node of a graph is made, or copied from another.
void NoteNode(uint64_t id, uint64_t original_id) {
  const Guard guard;
  if (guard) NoteGraphNode(guard.thread(), id, original_id, kGraph, false);
}

// What CUPTI's callback would do while NCCL launches.
void OnLaunch(const char* kernel, cudaStream_t stream, const void*) {
  if (const Guard guard; guard) {
    void* first = &on_device;
    NoteKernelLaunch(guard.thread(), {.name = kernel,
                                      .stream = stream,
                                      .context = reinterpret_cast<const void*>(0x77),
                                      .correlation = ++next_correlation,
                                      .each = on_device == 0 ? nullptr : &first});
  }
  if (captured_node == 0) return;
  NoteNode(captured_node, 0);
  NoteNode(captured_node + 1000, 0);  // a node that NCCL adds besides its kernel's
}

class Scopes : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    library_ = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    fake_ = reinterpret_cast<const FakeNccl* (*)()>(dlsym(library_, "fake_nccl"))();
    fake_->reset();
    fake_->set_launch_hook(OnLaunch);
    for (size_t i = 0; i < kEntryPoints; ++i) {
      real_functions[kFirstProviderWay][i].store(dlsym(library_, kSymbolNames[i]));
      ASSERT_NE(real_functions[kFirstProviderWay][i].load(), nullptr) << kSymbolNames[i];
    }
  }

  ncclComm_t Make(int rank = 0, int ranks = 4) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(Nccl::CommInitRank(&comm, ranks, id_, rank), ncclSuccess);
    return comm;
  }
  static ncclResult_t AllReduce(ncclComm_t comm, size_t count = 16, cudaStream_t stream = nullptr) {
    return Nccl::AllReduce(nullptr, nullptr, count, ncclFloat, ncclSum, comm, stream);
  }

  void* library_ = nullptr;
  const FakeNccl* fake_ = nullptr;
  ncclUniqueId id_ = {};
};

TEST_F(Scopes, ACallIsOneRecordWithItsKernel) {
  id_.internal[3] = 9;
  const ncclComm_t comm = Make(2, 4);
  const auto communicators = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(communicators.size(), 1u);
  EXPECT_EQ(communicators[0].hash, HashUniqueId(&id_));
  EXPECT_EQ(communicators[0].rank, 2);
  EXPECT_EQ(communicators[0].ranks, 4);
  EXPECT_EQ(communicators[0].device, 0);

  const uint64_t before = NowNs();
  ASSERT_EQ(AllReduce(comm, 1000), ncclSuccess);
  EXPECT_EQ(fake_->calls("AllReduce"), 1);
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_GE(calls[0].issue_ns, before);
  EXPECT_GE(calls[0].return_ns, calls[0].issue_ns);
  EXPECT_EQ(calls[0].seq, 0u);
  EXPECT_EQ(calls[0].count, 1000u);
  EXPECT_EQ(calls[0].element_bytes, 4u);
  EXPECT_EQ(calls[0].comm, communicators[0].id);
  EXPECT_EQ(calls[0].root, -1);
  EXPECT_EQ(calls[0].peer, -1);
  EXPECT_EQ(calls[0].source, static_cast<uint8_t>(wire::CallSource::kCallSourceRelocation));
  EXPECT_NE(calls[0].plan, 0u);
  const auto launches = Only<PlanLaunchEvent>(events);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].plan, calls[0].plan);
  EXPECT_EQ(launches[0].correlation, next_correlation);
}

TEST_F(Scopes, EveryOperationOfTheTableIsRecordedOnce) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::AllReduce(nullptr, nullptr, 1, ncclHalf, ncclSum, comm, nullptr);
  Nccl::AllGather(nullptr, nullptr, 2, ncclHalf, comm, nullptr);
  Nccl::ReduceScatter(nullptr, nullptr, 3, ncclHalf, ncclSum, comm, nullptr);
  Nccl::Broadcast(nullptr, nullptr, 4, ncclHalf, 1, comm, nullptr);
  Nccl::Reduce(nullptr, nullptr, 5, ncclHalf, ncclSum, 2, comm, nullptr);
  Nccl::AlltoAll(nullptr, nullptr, 6, ncclHalf, comm, nullptr);
  Nccl::Gather(nullptr, nullptr, 7, ncclHalf, 3, comm, nullptr);
  Nccl::Scatter(nullptr, nullptr, 8, ncclHalf, 1, comm, nullptr);
  Nccl::Send(nullptr, 9, ncclHalf, 2, comm, nullptr);
  Nccl::Recv(nullptr, 10, ncclHalf, 3, comm, nullptr);
  const auto calls = Only<CollectiveEvent>(Events());
  const char* names[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                         "AlltoAll",  "Gather",    "Scatter",       "Send",      "Recv"};
  const int roots[] = {-1, -1, -1, 1, 2, -1, 3, 1, -1, -1};
  const int peers[] = {-1, -1, -1, -1, -1, -1, -1, -1, 2, 3};
  ASSERT_EQ(calls.size(), 10u);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(OpName(calls[i].op), names[i]);
    EXPECT_EQ(calls[i].count, i + 1);
    EXPECT_EQ(calls[i].element_bytes, 2u);
    EXPECT_EQ(calls[i].root, roots[i]) << names[i];
    EXPECT_EQ(calls[i].peer, peers[i]) << names[i];
    // Sends and receives are counted apart: a rank that does not take part in a transfer keeps the number of
    // its collectives.
    EXPECT_EQ(calls[i].seq, i < 8 ? i : i - 8) << names[i];
    EXPECT_EQ(fake_->calls(names[i]), 1);
  }
}

TEST_F(Scopes, ACallThatNcclMakesItselfIsNotASecondRecord) {
  const ncclComm_t comm = Make();
  Events();
  // libnccl's own ncclBcast comes back to the exported ncclBroadcast.
  real_functions[kFirstProviderWay][static_cast<size_t>(EntryPoint::kBcast)].store(reinterpret_cast<void*>(
      +[](void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t inner, cudaStream_t stream) {
        return Nccl::Broadcast(buffer, buffer, count, type, root, inner, stream);
      }));
  ASSERT_EQ(Nccl::Bcast(nullptr, 8, ncclFloat, 0, comm, nullptr), ncclSuccess);
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(OpName(calls[0].op), "Broadcast");
  EXPECT_EQ(Only<PlanLaunchEvent>(events).size(), 1u);
  EXPECT_EQ(fake_->calls("Broadcast"), 1);
}

TEST_F(Scopes, AGroupIsReportedAtItsOutermostEnd) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::GroupStart();
  AllReduce(comm);
  Nccl::GroupStart();
  AllReduce(comm);
  ASSERT_EQ(Nccl::GroupEnd(), ncclSuccess);
  EXPECT_TRUE(Events().empty()) << "kernels and plans are not known yet";
  Nccl::AllGather(nullptr, nullptr, 4, ncclFloat, comm, nullptr);
  ASSERT_EQ(Nccl::GroupEnd(), ncclSuccess);
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].plan, calls[1].plan);
  EXPECT_NE(calls[0].plan, calls[2].plan);
  EXPECT_EQ(Only<PlanLaunchEvent>(events).size(), 2u);
  // The next call is on its own again.
  AllReduce(comm);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
}

TEST_F(Scopes, AFailedGroupHasFailedCallsWithoutPlan) {
  const ncclComm_t comm = Make();
  Events();
  fake_->fail_next("GroupEnd", ncclUnhandledCudaError);
  Nccl::GroupStart();
  AllReduce(comm);
  EXPECT_EQ(Nccl::GroupEnd(), ncclUnhandledCudaError);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].result, ncclUnhandledCudaError);
  EXPECT_EQ(calls[0].plan, 0u);
}

TEST_F(Scopes, WhereACommunicatorIsOnTheDeviceIsLearnedFromItsKernels) {
  const ncclComm_t comm = Make();
  on_device = 0x5000;
  AllReduce(comm);
  EXPECT_EQ(Find(comm)->on_device.load(), 0x5000u);
  on_device = 0x6000;
  AllReduce(comm);
  EXPECT_EQ(Find(comm)->on_device.load(), 0x5000u) << "it does not move";
  // In a group with another one, by elimination: the stand-in launches each call by itself.
  const ncclComm_t other = Make();
  Nccl::GroupStart();
  AllReduce(comm);
  AllReduce(other);
  Nccl::GroupEnd();
  EXPECT_EQ(Find(other)->on_device.load(), 0x6000u);
  const auto launches = Only<PlanLaunchEvent>(Events());
  on_device = 0;
  EXPECT_FALSE(launches.empty());
}

TEST_F(Scopes, AGroupEndWithoutStartIsTheApplicationsErrorOnly) {
  EXPECT_EQ(Nccl::GroupEnd(), ncclInvalidUsage);
  const ncclComm_t comm = Make();
  Events();
  AllReduce(comm);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
}

TEST_F(Scopes, ASimulatedGroupLeavesNoRecordAndNoGapInTheNumbers) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::GroupStart();
  AllReduce(comm);
  AllReduce(comm);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ASSERT_EQ(Nccl::GroupSimulateEnd(&info), ncclSuccess);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
  AllReduce(comm);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].seq, 0u);
}

TEST_F(Scopes, ASimulatedGroupOfMoreCallsThanThereIsRoomForLeavesNoGapEither) {
  const ncclComm_t comm = Make();
  const ncclComm_t other = Make();
  Events();
  Nccl::GroupStart();
  for (uint32_t i = 0; i < kGroupCalls + 5; ++i) AllReduce(i % 2 == 0 ? comm : other);
  fake_->fail_next("AllReduce", ncclInvalidArgument);
  EXPECT_EQ(AllReduce(comm), ncclInvalidArgument);
  AllReduce(comm);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ASSERT_EQ(Nccl::GroupSimulateEnd(&info), ncclSuccess);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
  AllReduce(comm);
  AllReduce(other);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].seq, 0u);
  EXPECT_EQ(calls[1].seq, 0u);
}

TEST_F(Scopes, OfManyCommunicatorsTooASimulatedGroupLeavesNoGap) {
  std::vector<ncclComm_t> comms(20);
  for (ncclComm_t& comm : comms) comm = Make();
  Events();
  Nccl::GroupStart();
  for (uint32_t i = 0; i < kGroupCalls; ++i) AllReduce(comms[0]);
  for (uint32_t i = 0; i < 3 * comms.size(); ++i) AllReduce(comms[i % comms.size()]);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ASSERT_EQ(Nccl::GroupSimulateEnd(&info), ncclSuccess);
  for (const ncclComm_t comm : comms) AllReduce(comm);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), comms.size());
  for (const CollectiveEvent& call : calls) EXPECT_EQ(call.seq, 0u);
}

TEST_F(Scopes, ARefusedCallBeyondTheRoomOfItsGroupGivesItsNumberBack) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::GroupStart();
  for (uint32_t i = 0; i < kGroupCalls + 3; ++i) AllReduce(comm);
  fake_->fail_next("AllReduce", ncclInvalidArgument);
  EXPECT_EQ(AllReduce(comm), ncclInvalidArgument);
  Nccl::GroupEnd();
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), kGroupCalls);
  AllReduce(comm);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].seq, kGroupCalls + 3) << "those that were not kept count, the refused one does not";
}

TEST_F(Scopes, OneSidedCallsHaveNumbersOfTheirOwnAndNoKernel) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::PutSignal(nullptr, 100, ncclFloat, 1, nullptr, 0, 0, 0, 0, comm, nullptr);
  Nccl::Signal(2, 0, 0, 0, comm, nullptr);
  WaitSignalDesc several[] = {{1, 1, 0, 0}, {1, 2, 0, 0}};
  Nccl::WaitSignal(2, several, comm, nullptr);
  Nccl::WaitSignal(1, several, comm, nullptr);
  AllReduce(comm);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 5u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(calls[i].seq, i);
    EXPECT_EQ(calls[i].plan, 0u);
  }
  EXPECT_EQ(calls[0].peer, 1);
  EXPECT_EQ(calls[0].count * calls[0].element_bytes, 400u);
  EXPECT_EQ(calls[1].peer, 2);
  EXPECT_EQ(calls[2].peer, -1) << "several";
  EXPECT_EQ(calls[3].peer, 1);
  EXPECT_EQ(calls[4].seq, 0u) << "collectives are counted by themselves";
}

TEST_F(Scopes, ARefusedCallKeepsItsResultAndGivesItsNumberBack) {
  const ncclComm_t comm = Make();
  Events();
  fake_->fail_next("AllReduce", ncclInvalidArgument);
  EXPECT_EQ(AllReduce(comm), ncclInvalidArgument);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].result, ncclInvalidArgument);
  EXPECT_EQ(calls[0].plan, 0u);
  EXPECT_EQ(calls[1].seq, 0u);
}

TEST_F(Scopes, ABiggerGroupThanTheBufferIsCountedAndEveryCallIsMade) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::GroupStart();
  for (uint32_t i = 0; i < kGroupCalls + 5; ++i) ASSERT_EQ(AllReduce(comm), ncclSuccess);
  ASSERT_EQ(Nccl::GroupEnd(), ncclSuccess);
  EXPECT_EQ(fake_->calls("AllReduce"), static_cast<int>(kGroupCalls) + 5);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), kGroupCalls);
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 5u);
}

TEST_F(Scopes, CommunicatorsMadeInAGroupAreKnownAtItsEnd) {
  ncclComm_t comms[2] = {};
  Nccl::GroupStart();
  Nccl::CommInitRank(&comms[0], 2, id_, 0);
  Nccl::CommInitRank(&comms[1], 2, id_, 1);
  EXPECT_TRUE(Events().empty());
  ASSERT_EQ(Nccl::GroupEnd(), ncclSuccess);
  const auto made = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].hash, made[1].hash);
  EXPECT_EQ(made[0].rank, 0);
  EXPECT_EQ(made[1].rank, 1);
  EXPECT_NE(made[0].id, made[1].id);
}

TEST_F(Scopes, ChildrenCarryAHashFromTheirParent) {
  const ncclComm_t parent = Make(1, 4);
  ncclComm_t child = nullptr;
  ncclComm_t none = nullptr;
  ncclComm_t second = nullptr;
  Events();
  Nccl::CommSplit(parent, 3, 1, &child, nullptr);
  Nccl::CommSplit(parent, NCCL_SPLIT_NOCOLOR, 1, &none, nullptr);
  Nccl::CommSplit(parent, 3, 1, &second, nullptr);
  const auto made = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(made.size(), 2u) << "a split without color makes none";
  const uint64_t parent_hash = HashUniqueId(&id_);
  EXPECT_EQ(made[0].hash, HashChild(parent_hash, 0, 3));
  EXPECT_EQ(made[1].hash, HashChild(parent_hash, 2, 3)) << "every member counts every split";
  EXPECT_NE(made[0].parent, 0u);
  EXPECT_EQ(made[0].rank, 1);
  EXPECT_EQ(made[0].ranks, 2);
}

TEST_F(Scopes, TheProgramsNameIsCopiedFromItsConfiguration) {
  char text[] = "tensor parallel";
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = text;
  ncclComm_t comm = nullptr;
  ncclComm_t child = nullptr;
  Nccl::GroupStart();
  Nccl::CommInitRankConfig(&comm, 4, id_, 1, &config);
  text[0] = '?';  // only the call may read it
  Nccl::GroupEnd();
  config.commName = nullptr;
  Nccl::CommSplit(comm, 0, 1, &child, &config);
  const auto made = Events();
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].text, "tensor parallel");
  EXPECT_EQ(made[1].text, "") << "a child has its own name or none";
}

TEST_F(Scopes, ALongNameIsCut) {
  const std::string text(100, 'n');
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = text.c_str();
  ncclComm_t comm = nullptr;
  Nccl::CommInitRankConfig(&comm, 4, id_, 1, &config);
  EXPECT_EQ(Events().at(0).text, text.substr(0, kCommunicatorNameBytes));
}

TEST_F(Scopes, ConfigurationsWithoutTheFieldHaveNoName) {
  const ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
  ncclConfig_t older = whole;
  older.version = NCCL_VERSION(2, 26, 5);
  ncclConfig_t shorter = whole;
  shorter.size = offsetof(ncclConfig_t, commName);
  ncclConfig_t foreign = whole;
  foreign.magic = 7;
  ncclConfig_t unreadable = whole;
  for (ncclConfig_t* config : {&older, &shorter, &foreign, &unreadable}) {
    config->commName = reinterpret_cast<const char*>(0x10);  // nobody may follow it
    ncclComm_t comm = nullptr;
    Nccl::CommInitRankConfig(&comm, 4, id_, 1, config);
    EXPECT_EQ(Events().at(0).text, "");
  }
}

TEST_F(Scopes, ACommunicatorIsBeingCreatedUntilTheCallReturnsOrTheGroupEnds) {
  CommunicatorCreation creation;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(Nccl::CommInitRank(&comm, 4, id_, 3), ncclSuccess);
  const uint64_t hash = Only<CommunicatorEvent>(Events()).at(0).hash;
  EXPECT_FALSE(creating_communicator.Read(&creation));
  Nccl::GroupStart();
  ASSERT_EQ(Nccl::CommInitRank(&comm, 4, id_, 3), ncclSuccess);
  ASSERT_TRUE(creating_communicator.Read(&creation));
  EXPECT_EQ(creation.hash, hash);
  EXPECT_EQ(creation.rank, 3);
  EXPECT_EQ(creation.ranks, 4);
  EXPECT_NE(creation.since_ns, 0u);
  Nccl::GroupEnd();
  EXPECT_FALSE(creating_communicator.Read(&creation));
}

TEST_F(Scopes, ACommunicatorThatCouldNotBeCreatedIsNotedWithItsResult) {
  CommunicatorCreation creation;
  ncclComm_t comm = nullptr;
  fake_->fail_next("CommInitRank", ncclSystemError);
  ASSERT_EQ(Nccl::CommInitRank(&comm, 4, id_, 3), ncclSystemError);
  EXPECT_FALSE(creating_communicator.Read(&creation));
  ASSERT_TRUE(refused_communicator.Read(&creation));
  EXPECT_EQ(creation.result, ncclSystemError);
  EXPECT_EQ(creation.rank, 3);
}

TEST_F(Scopes, ACommunicatorThatDoesNotBlockIsBeingCreatedUntilNcclSaysOtherwise) {
  CommunicatorCreation creation;
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclSuccess;
  ASSERT_EQ(Nccl::CommInitRankConfig(&comm, 4, id_, 1, nullptr), ncclInProgress);
  ASSERT_TRUE(creating_communicator.Read(&creation));
  EXPECT_EQ(creation.result, ncclInProgress);
  EXPECT_EQ(creation.rank, 1);
  fake_->fail_next("CommGetAsyncError", ncclInProgress);
  Nccl::CommGetAsyncError(comm, &state);
  EXPECT_TRUE(creating_communicator.Read(&creation));
  Nccl::CommGetAsyncError(comm, &state);
  EXPECT_FALSE(creating_communicator.Read(&creation));
  // The program abandons it.
  ASSERT_EQ(Nccl::CommInitRankConfig(&comm, 4, id_, 1, nullptr), ncclInProgress);
  ASSERT_TRUE(creating_communicator.Read(&creation));
  Nccl::CommAbort(comm);
  EXPECT_FALSE(creating_communicator.Read(&creation));
  // The next one is noted, whichever thread creates it.
  Nccl::GroupStart();
  ASSERT_EQ(Nccl::CommInitRank(&comm, 4, id_, 3), ncclSuccess);
  EXPECT_TRUE(creating_communicator.Read(&creation));
  Nccl::GroupEnd();
  EXPECT_FALSE(creating_communicator.Read(&creation));
}

TEST_F(Scopes, ACommunicatorIsNotedWhileItGrows) {
  CommunicatorCreation creation;
  const ncclComm_t parent = Make(1, 4);
  ncclComm_t grown = nullptr;
  Nccl::GroupStart();
  Nccl::CommGrow(parent, 6, nullptr, -1, &grown, nullptr);
  ASSERT_TRUE(creating_communicator.Read(&creation));
  EXPECT_EQ(creation.parent, Find(parent)->hash.load());
  EXPECT_EQ(creation.ranks, 6);
  Nccl::GroupEnd();
  EXPECT_FALSE(creating_communicator.Read(&creation));
}

TEST_F(Scopes, AGrownCommunicatorHasNoNameOfOurs) {
  const ncclComm_t parent = Make(1, 4);
  ncclComm_t of_old = nullptr;
  ncclComm_t of_new = nullptr;
  Events();
  Nccl::CommGrow(parent, 6, nullptr, -1, &of_old, nullptr);
  Nccl::CommGrow(nullptr, 6, &id_, 5, &of_new, nullptr);
  const auto made = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(made.size(), 2u);
  EXPECT_NE(made[0].parent, 0u);
  EXPECT_EQ(made[1].parent, 0u);
  EXPECT_EQ(made[0].rank, 1);
  EXPECT_EQ(made[1].rank, 5);
  for (const CommunicatorEvent& comm : made) {
    EXPECT_EQ(comm.hash, 0u) << "old and new ranks have nothing in common to name it by";
    EXPECT_EQ(comm.ranks, 6);
  }
}

TEST_F(Scopes, ARevokedCommunicatorIsReportedAndStaysKnown) {
  const ncclComm_t comm = Make();
  Events();
  fake_->fail_next("CommRevoke", ncclInvalidArgument);
  Nccl::CommRevoke(comm, 0);
  EXPECT_TRUE(Events().empty());
  Nccl::CommRevoke(comm, 0);
  const auto told = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state, static_cast<uint8_t>(wire::CommunicatorState::kCommunicatorStateRevoked));
  EXPECT_NE(Find(comm), nullptr);
}

TEST_F(Scopes, AllCommunicatorsOfAProcessShareAHash) {
  ncclComm_t comms[3] = {};
  const int devices[] = {4, 5, 6};
  ASSERT_EQ(Nccl::CommInitAll(comms, 3, devices), ncclSuccess);
  const auto made = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(made.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(made[i].hash, made[0].hash);
    EXPECT_NE(made[i].hash, 0u);
    EXPECT_EQ(made[i].rank, i);
    EXPECT_EQ(made[i].device, devices[i]);
  }
}

TEST_F(Scopes, AnUnknownCommunicatorIsAskedForItsRankOnce) {
  ncclComm_t comm = nullptr;
  reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>(
      dlsym(library_, "ncclCommInitRank"))(&comm, 4, id_, 3);
  AllReduce(comm);
  AllReduce(comm);
  const auto events = Events();
  const auto made = Only<CommunicatorEvent>(events);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].hash, 0u);
  EXPECT_EQ(made[0].rank, 3);
  EXPECT_EQ(made[0].ranks, 4);
  EXPECT_EQ(fake_->calls("CommUserRank"), 1);
  EXPECT_EQ(Only<CollectiveEvent>(events).size(), 2u);
}

TEST_F(Scopes, WhatNcclDoesWhenTheProbeAsksItIsNotLost) {
  static int queries;
  queries = 0;
  fake_->set_query_hook([] {
    ++queries;
    if (const Guard guard; !guard) CountRefused();  // as the handler of an NVTX range does
  });
  ncclComm_t comm = nullptr;  // made past the wrappers
  reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>(
      dlsym(library_, "ncclCommInitRank"))(&comm, 4, id_, 3);
  AllReduce(comm);
  const uint64_t lost = LossCount(wire::LossReason::kLossInterrupted);
  int ranks = 0;
  Nccl::CommCount(comm, &ranks);
  fake_->set_query_hook(nullptr);
  EXPECT_GE(queries, 2) << "the probe asked, and so did the program";
  EXPECT_EQ(lost, 0u);
}

TEST_F(Scopes, TheEndOfACommunicatorIsReported) {
  const ncclComm_t comm = Make();
  const ncclComm_t other = Make();
  Events();
  Nccl::CommDestroy(comm);
  Nccl::CommAbort(other);
  const auto ended = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].state, static_cast<uint8_t>(wire::CommunicatorState::kCommunicatorStateDestroyed));
  EXPECT_EQ(ended[1].state, static_cast<uint8_t>(wire::CommunicatorState::kCommunicatorStateAborted));
  EXPECT_EQ(Find(comm), nullptr);
}

TEST_F(Scopes, ARefusedDestructionLeavesTheCommunicatorAsItWas) {
  const ncclComm_t comm = Make();
  AllReduce(comm);
  Events();
  fake_->fail_next("CommDestroy", ncclInvalidUsage);
  EXPECT_EQ(Nccl::CommDestroy(comm), ncclInvalidUsage);
  EXPECT_TRUE(Events().empty());
  AllReduce(comm);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].seq, 1u);
}

TEST_F(Scopes, ChildrenThatNcclRefusedAreNotCounted) {
  const ncclComm_t parent = Make();
  ncclComm_t child = nullptr;
  const uint64_t hash = Find(parent)->hash.load();
  fake_->fail_next("CommSplit", ncclInvalidArgument);
  EXPECT_EQ(Nccl::CommSplit(parent, 3, 1, &child, nullptr), ncclInvalidArgument);
  EXPECT_EQ(Nccl::CommSplit(parent, 3, 1, &child, nullptr), ncclSuccess);
  EXPECT_EQ(Find(child)->hash.load(), HashChild(hash, 0, 3));
  fake_->fail_next("CommDestroy", ncclInvalidUsage);
  EXPECT_EQ(Nccl::CommDestroy(parent), ncclInvalidUsage);
  EXPECT_EQ(Nccl::CommSplit(parent, 3, 1, &child, nullptr), ncclSuccess);
  EXPECT_EQ(Find(child)->hash.load(), HashChild(hash, 1, 3)) << "as many as before the refused end";
}

TEST_F(Scopes, ACommunicatorThatDoesNotBlockIsKnownOnceItIsMade) {
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclSuccess;
  ASSERT_EQ(Nccl::CommInitRankConfig(&comm, 4, id_, 1, nullptr), ncclInProgress);
  EXPECT_EQ(Only<CommunicatorEvent>(Events()).at(0).device, -1);
  fake_->fail_next("CommGetAsyncError", ncclInProgress);
  Nccl::CommGetAsyncError(comm, &state);
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(fake_->calls("CommCuDevice"), 0) << "NCCL is not asked before";
  Nccl::CommGetAsyncError(comm, &state);
  EXPECT_EQ(Only<CommunicatorEvent>(Events()).at(0).device, 0);
  Nccl::CommGetAsyncError(comm, &state);
  EXPECT_TRUE(Events().empty());
}

TEST_F(Scopes, CommunicatorsBeyondTheTableAreCounted) {
  for (uintptr_t i = 1; i <= kMaxCommunicators + 200; ++i)
    Register(reinterpret_cast<const void*>(i * 64), {});
  const ncclComm_t comm = Make(0, 4);
  const bool known = Find(comm) != nullptr;
  Events();
  ASSERT_EQ(AllReduce(comm), ncclSuccess);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u) << "the call itself is kept";
  EXPECT_EQ(LossCount(wire::LossReason::kLossCommunicatorUnknown), known ? 0u : 1u);
  EXPECT_EQ(calls[0].comm == 0, !known);
}

TEST_F(Scopes, WithTheProbeOffTheCallGoesThroughAndNothingIsRecorded) {
  const ncclComm_t comm = Make();
  Events();
  Switch(false);
  Nccl::GroupStart();
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  Switch(true);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(Nccl::GroupEnd(), ncclSuccess);
  EXPECT_EQ(fake_->calls("AllReduce"), 2);
  const auto events = Events();
  EXPECT_EQ(Only<CollectiveEvent>(events).size(), 1u);
  EXPECT_EQ(Only<PlanLaunchEvent>(events).size(), 1u) << "the group was followed while the probe was off";
}

TEST_F(Scopes, KernelsOutsideNcclCallsAreNobodys) {
  const ncclComm_t comm = Make();
  Events();
  Nccl::GroupStart();
  AllReduce(comm);
  OnLaunch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", nullptr,
           nullptr);  // the application's own, between the calls
  OnLaunch("vector_add", nullptr, nullptr);
  Nccl::GroupEnd();
  EXPECT_EQ(Only<PlanLaunchEvent>(Events()).size(), 1u);
}

TEST_F(Scopes, ACapturedCallKeepsItsPlanUnderItsNodeAndTheNodesCopies) {
  const ncclComm_t comm = Make();
  Events();
  captured_node = 70;
  AllReduce(comm);
  captured_node = 0;
  AllReduce(comm);
  NoteNode(71, 70);  // instantiated
  NoteNode(72, 71);  // from a copy of a copy
  NoteNode(80, 79);  // a node of the program's own
  NoteNode(81, 0);   // made outside of every call
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  const auto launches = Only<PlanLaunchEvent>(events);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_NE(calls[0].plan, calls[1].plan);
  ASSERT_EQ(launches.size(), 4u);
  EXPECT_EQ(launches[1].plan, calls[1].plan);
  EXPECT_NE(launches[1].correlation, 0u);
  EXPECT_EQ(launches[1].graph_node, 0u);
  const uint64_t nodes[] = {70, 71, 72};
  const size_t at[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(launches[at[i]].plan, calls[0].plan);
    EXPECT_EQ(launches[at[i]].correlation, 0u);
    EXPECT_EQ(launches[at[i]].graph_node, nodes[i]);
  }
}

TEST_F(Scopes, NodesAreOfInterestOnlyInsideACallAndAfterACapture) {
  ThreadState& thread = CurrentThread();
  EXPECT_FALSE(WantsGraphNode(thread, false, false));
  EXPECT_FALSE(WantsGraphNode(thread, true, false));
  captured_node = 70;
  AllReduce(Make());
  captured_node = 0;
  EXPECT_FALSE(WantsGraphNode(thread, false, false));
  EXPECT_TRUE(WantsGraphNode(thread, true, false));
}

TEST_F(Scopes, TheLargestCommunicatorSaysWhoWeAre) {
  Make(1, 2);
  Make(5, 512);
  Make(0, 4);
  NcclIdentity identity{};
  ASSERT_TRUE(IdentityFromNccl(&identity));
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.world_size, 512);
}

TEST_F(Scopes, WithoutNcclTheAnswerIsASystemError) {
  using Nothing = Wrappers<kFirstProviderWay + 1>;
  EXPECT_EQ(Nothing::GroupStart(), ncclSystemError);
  EXPECT_EQ(Nothing::AllReduce(nullptr, nullptr, 1, ncclFloat, ncclSum, nullptr, nullptr), ncclSystemError);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
