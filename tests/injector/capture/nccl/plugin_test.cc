// What NCCL tells its profiler plugin becomes calls, unless a wrapper has them.
#include "injector/capture/nccl/plugin.h"

#include <dlfcn.h>

#include "injector/base/environment.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/core/guard.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

constexpr PluginCall kAllReduce{EntryPoint::kAllReduce, 7, -1, -1, 100, 0, 1};
constexpr PluginCall kSend{EntryPoint::kSend, 7, -1, 2, 10, 0, 1};

class Plugin : public LiveProbe {
 protected:
  static void Launch(uint32_t correlation) {
    const Guard guard;
    ASSERT_TRUE(guard);
    NotePluginLaunch(guard.thread(), correlation);
  }
};

TEST_F(Plugin, CallsBelongToTheKernelThatWasLaunchedBefore) {
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, "tensor parallel");
  ASSERT_NE(comm, nullptr);
  EXPECT_TRUE(Events().empty()) << "a communicator is reported with its first call";
  Launch(11);
  NotePluginCall(comm, kAllReduce);
  NotePluginCall(comm, kAllReduce);
  EndPluginGroup();
  Launch(12);
  NotePluginCall(comm, kSend);
  EndPluginGroup();
  const auto events = Events();
  const auto communicators = Only<CommunicatorEvent>(events);
  ASSERT_EQ(communicators.size(), 1u);
  EXPECT_EQ(communicators[0].hash, 0xabcu);
  EXPECT_EQ(communicators[0].rank, 1);
  EXPECT_EQ(communicators[0].ranks, 4);
  EXPECT_EQ(events[0].text, "tensor parallel");
  const auto calls = Only<CollectiveEvent>(events);
  const auto launches = Only<PlanLaunchEvent>(events);
  ASSERT_EQ(calls.size(), 3u);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].correlation, 11u);
  EXPECT_EQ(launches[1].correlation, 12u);
  EXPECT_EQ(calls[0].plan, launches[0].plan);
  EXPECT_EQ(calls[1].plan, launches[0].plan);
  EXPECT_EQ(calls[2].plan, launches[1].plan);
  EXPECT_EQ(calls[0].seq, 0u);
  EXPECT_EQ(calls[1].seq, 1u);
  EXPECT_EQ(calls[2].seq, 0u) << "sends and receives are counted apart";
  EXPECT_EQ(calls[2].peer, 2);
  EXPECT_EQ(calls[0].count, 100u);
  EXPECT_EQ(calls[0].element_bytes, 4u);
  EXPECT_EQ(calls[0].source, static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin));
  ClosePluginCommunicator(comm);
  const auto ends = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].state, static_cast<uint8_t>(wire::CommunicatorState::kCommunicatorStateDestroyed));
}

TEST_F(Plugin, AReplayThatNoLaunchOfThisThreadExplainsIsNotACall) {
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  NotePluginCall(comm, kAllReduce);
  Launch(11);
  EndPluginGroup();
  NotePluginCall(comm, kAllReduce);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
}

TEST_F(Plugin, OldVersionsTellTheCommunicatorWithTheCall) {
  PluginCommunicator* comm = OpenPluginCommunicator(0, -1, 0, nullptr);
  Launch(11);
  NotePluginCall(comm, {EntryPoint::kAllReduce, 7, -1, -1, 100, 0xdef, 3});
  const auto communicators = Only<CommunicatorEvent>(Events());
  ASSERT_EQ(communicators.size(), 1u);
  EXPECT_EQ(communicators[0].hash, 0xdefu);
  EXPECT_EQ(communicators[0].rank, 3);
  EXPECT_EQ(communicators[0].ranks, 0);
}

TEST_F(Plugin, ACallThatAWrapperSeesIsTheWrappers) {
  int handle = 0;
  Register(&handle, {.hash = 0xabc, .rank = 1, .ranks = 4, .device = 0});
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
  call.Begin(100, ncclFloat32, -1, -1, &handle, nullptr);
  NotePluginCall(comm, kAllReduce);
  EndPluginGroup();
  call.End(ncclSuccess);
  Launch(12);  // a thread of NCCL's launches for a communicator that does not block
  NotePluginCall(comm, kAllReduce);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].source, static_cast<uint8_t>(wire::CallSource::kCallSourceRelocation));
}

TEST_F(Plugin, ACallPastTheWrapperOnItsCommunicatorIsRecordedUnderThatOne) {
  int handle = 0;
  Communicator* wrapped = Register(&handle, {.hash = 0xabc, .rank = 1, .ranks = 4, .device = 0});
  wrapped->blocking.store(Blocking::kYes);
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
  call.Begin(100, ncclFloat32, -1, -1, &handle, nullptr);
  NotePluginCall(comm, kAllReduce);
  EndPluginGroup();
  call.End(ncclSuccess);
  Launch(12);
  NotePluginCall(comm, kAllReduce);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1].source, static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin));
  EXPECT_EQ(calls[1].comm, calls[0].comm);
  EXPECT_EQ(calls[0].seq, 0u);
  EXPECT_EQ(calls[1].seq, 1u);
}

TEST_F(Plugin, ACommunicatorThatAWrapperMeetsLaterIsKnownByThePlugin) {
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  Launch(11);
  NotePluginCall(comm, kAllReduce);
  EndPluginGroup();
  Events();
  int handle = 0;
  for (int i = 0; i < 2; ++i) {
    CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
    call.Begin(100, ncclFloat32, -1, -1, &handle, nullptr);
    NotePluginCall(comm, kAllReduce);
    EndPluginGroup();
    call.End(ncclSuccess);
  }
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].seq, 1u) << "the one before was the plugin's";
  EXPECT_EQ(calls[1].seq, 2u);
  const auto communicators = Only<CommunicatorEvent>(events);
  ASSERT_FALSE(communicators.empty());
  EXPECT_EQ(communicators.back().id, calls[0].comm);
  EXPECT_EQ(communicators.back().hash, 0xabcu);
}

TEST_F(Plugin, ACommunicatorWithCallsThatNobodyCountedIsNotNamed) {
  PluginCommunicator* comm = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  Launch(11);  // captured: nothing is reported
  Launch(12);
  NotePluginCall(comm, kAllReduce);
  EndPluginGroup();
  int handle = 0;
  CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
  call.Begin(100, ncclFloat32, -1, -1, &handle, nullptr);
  NotePluginCall(comm, kAllReduce);
  call.End(ncclSuccess);
  EXPECT_EQ(Find(&handle)->hash.load(), 0u);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 2u);
}

TEST_F(Plugin, InAGroupTheCommunicatorIsTheOneThatFits) {
  PluginCommunicator* four = OpenPluginCommunicator(0x44, 1, 4, nullptr);
  PluginCommunicator* two = OpenPluginCommunicator(0x22, 1, 2, nullptr);
  PluginCommunicator* other_two = OpenPluginCommunicator(0x23, 1, 2, nullptr);
  int handles[3] = {};
  const int32_t ranks[3] = {4, 2, 2};
  for (int i = 0; i < 3; ++i) Register(&handles[i], {.hash = 0, .rank = 1, .ranks = ranks[i], .device = 0});
  GroupStartScope start(Origin{kFirstProviderWay, EntryPoint::kGroupStart});
  start.Begin();
  start.End(ncclSuccess);
  for (int& handle : handles) {
    CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
    call.Begin(100, ncclFloat32, -1, -1, &handle, nullptr);
    call.End(ncclSuccess);
  }
  GroupEndScope end(Origin{kFirstProviderWay, EntryPoint::kGroupEnd});
  end.Begin();
  NotePluginCall(two, kAllReduce);
  NotePluginCall(other_two, kAllReduce);
  NotePluginCall(four, kAllReduce);
  end.End(ncclSuccess);
  EXPECT_EQ(Find(&handles[0])->hash.load(), 0x44u);
  EXPECT_EQ(Find(&handles[1])->hash.load(), 0u) << "either of two";
  EXPECT_EQ(Find(&handles[2])->hash.load(), 0u);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 3u);
}

TEST_F(Plugin, MoreCommunicatorsThanPlacesAreCounted) {
  std::vector<PluginCommunicator*> all;
  for (uint32_t i = 0; i < kPluginCommunicators; ++i)
    all.push_back(OpenPluginCommunicator(i + 1, 0, 2, nullptr));
  EXPECT_NE(all.back(), nullptr);
  EXPECT_EQ(OpenPluginCommunicator(7777, 0, 2, nullptr), nullptr);
  NotePluginCall(nullptr, kAllReduce);
  ClosePluginCommunicator(nullptr);
  ClosePluginCommunicator(all.front());
  EXPECT_NE(OpenPluginCommunicator(7777, 0, 2, nullptr), nullptr);
}

TEST_F(Plugin, NothingIsKeptWhileTheProbeIsOff) {
  Switch(false);
  EXPECT_EQ(OpenPluginCommunicator(1, 0, 2, nullptr), nullptr);
  Switch(true);
}

class Offer : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("NCCL_PROFILER_PLUGIN");
    unsetenv("NCCL_NET_PLUGIN");
  }
};

TEST_F(Offer, OurselvesWhenNobodyChoseAPlugin) {
  OfferPlugin();
  ASSERT_NE(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), nullptr);
  EXPECT_EQ(AnsweringGetenv("NCCL_PROFILER_PLUGIN")[0], '/');
  EXPECT_EQ(getenv("NCCL_PROFILER_PLUGIN"), nullptr);
}

TEST_F(Offer, SomebodyElsesPluginIsNeverDisplaced) {
  setenv("NCCL_PROFILER_PLUGIN", "theirs", 1);
  OfferPlugin();
  EXPECT_STREQ(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), "theirs");
  unsetenv("NCCL_PROFILER_PLUGIN");
  setenv("NCCL_NET_PLUGIN", "libnccl-net-theirs.so", 1);  // it may bring a profiler with it
  OfferPlugin();
  EXPECT_EQ(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), nullptr);
}

TEST_F(Offer, APluginThatNcclWouldFindByItselfIsNotDisplaced) {
  char folder[] = "/tmp/gpuprobe-plugin-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/libnccl-profiler.so";
  fclose(fopen(file.c_str(), "w"));
  const char* before = getenv("LD_LIBRARY_PATH");
  const std::string kept = before == nullptr ? "" : before;
  setenv("LD_LIBRARY_PATH", (std::string("/nowhere:") + folder).c_str(), 1);
  OfferPlugin();
  setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
  remove(file.c_str());
  rmdir(folder);
  EXPECT_EQ(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), nullptr);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
