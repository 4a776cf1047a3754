// Groups of which the wrappers see a part only: each call is recorded once, with the kernel that carried it,
// whatever part that is, and whatever NCCL tells its plugin.
#include "injector/capture/nccl/torn_groups.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/kernel_launches.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/core/guard.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

constexpr const char* kKernel =
    "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
constexpr auto kWrapperSource = static_cast<uint8_t>(wire::CallSource::kCallSourceRelocation);
constexpr auto kPluginSource = static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin);

// What NCCL tells a plugin: nothing; the calls of each launch (versions 1 to 4); these, and before them what
// the application called (5 on).
enum class Told { kNothing, kLaunches, kCalls };

// NCCL and the program on top of it, on one thread. Each call of the program's goes through the wrappers or
// past them, as the test says; each has a count of its own.
class TornNccl {
 public:
  TornNccl(Told told, const void* handle) : told_(told), handle_(handle) {
    plugin_ = told == Told::kNothing ? nullptr : OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  }

  ~TornNccl() { ClosePluginCommunicator(plugin_); }
  TornNccl(const TornNccl&) = delete;
  TornNccl& operator=(const TornNccl&) = delete;

  // 'S' GroupStart, 'C' a collective, 'Z' one of no elements, 'E' GroupEnd.
  void Do(char what, bool seen) {
    switch (what) {
      case 'S': {
        GroupStartScope scope(Origin{kFirstProviderWay, EntryPoint::kGroupStart});
        if (seen) scope.Begin();
        ++depth_;
        if (seen) scope.End(ncclSuccess);
        break;
      }
      case 'E': {
        GroupEndScope scope(Origin{kFirstProviderWay, EntryPoint::kGroupEnd});
        if (seen) scope.Begin();
        if (--depth_ == 0) Launch();
        if (seen) scope.End(ncclSuccess);
        break;
      }
      default: {
        const uint64_t count = what == 'Z' ? 0 : ++calls;
        CallScope scope(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
        if (seen) scope.Begin(count, ncclFloat32, -1, -1, handle_, nullptr);
        if (seen && count != 0) seen_calls.insert(count);
        if (count != 0) {
          Accept(count);
          if (depth_ == 0) Launch();
        }
        if (seen) scope.End(ncclSuccess);
      }
    }
  }

  uint64_t calls = 0;
  std::set<uint64_t> seen_calls;                 // by their counts
  std::map<uint32_t, std::set<uint64_t>> plans;  // correlation id -> counts

 private:
  static constexpr uint8_t kFloat = 7;

  void Accept(uint64_t count) {
    if (told_ == Told::kCalls) {
      if (group_.empty()) BeginApiGroup();
      NoteApiCall(plugin_, {EntryPoint::kAllReduce, kFloat, -1, -1, count}, nullptr);
    }
    group_.push_back(count);
  }
  void Launch() {
    if (group_.empty()) return;
    {
      const Guard guard;
      ASSERT_TRUE(guard);
      NoteLaunch(guard.thread(),
                 {.name = kKernel, .stream = nullptr, .context = nullptr, .correlation = ++correlation_});
    }
    for (const uint64_t count : group_) {
      plans[correlation_].insert(count);
      if (plugin_ != nullptr) NotePluginCall(plugin_, {EntryPoint::kAllReduce, kFloat, -1, -1, count, 0, 1});
    }
    if (plugin_ != nullptr) EndPluginGroup();
    if (told_ == Told::kCalls) EndApiGroup();
    group_.clear();
  }

  const Told told_;
  const void* handle_;
  PluginCommunicator* plugin_;
  int depth_ = 0;
  uint32_t correlation_ = 0;
  std::vector<uint64_t> group_;
};

class TornGroups : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    thread_end_hook.store(EndThread);
    Begin();
  }
  void TearDown() override {
    ResetThread();
    LiveProbe::TearDown();
  }

  void Begin() {
    Remove(&handle_);
    if (creation_seen_) {
      Communicator* comm = Register(&handle_, {.hash = 0xabc, .rank = 1, .ranks = 4, .device = 0});
      comm->blocking.store(Blocking::kYes);
    }
    ResetThread();
    CallsAreBeingLedToUs();
  }
  static void ResetThread() {
    ThreadState& thread = CurrentThread();
    thread.nccl_call_depth = 0;
    ThreadCalls& calls = CallsOf(thread);
    for (CallBatch* batch : {calls.batch, Take(calls.held), Take(calls.ended)}) ReleaseGroupBatch(batch);
    EndThread(thread);
  }
  static void CallsAreBeingLedToUs() { CallsOf(CurrentThread()).patches_seen = LatePatches() - 2; }
  static void Settle() {
    ThreadState& thread = CurrentThread();
    ReportEndedGroups(thread);
    ReportEndedGroups(thread);
    FlushHeld(thread);
  }

  // Runs the program with the parts that `seen` says, and says what was wrong with the record; empty:
  // nothing.
  std::string Run(std::string_view program, std::string_view seen, Told told) {
    Begin();
    TornNccl nccl(told, &handle_);
    for (size_t i = 0; i < program.size(); ++i) {
      CallsAreBeingLedToUs();
      nccl.Do(program[i], seen[i] == '1');
      EXPECT_TRUE(StateIsConsistent()) << program << " " << seen << " " << i;
    }
    Settle();
    return Differences(nccl, told, Events());
  }

  // As thread_calls.h draws it. Outside of all calls.
  static bool StateIsConsistent() {
    const ThreadState& thread = CurrentThread();
    const ThreadCalls& calls = CallsOf(thread);
    const bool holds = calls.held.load() != nullptr;
    const bool ended = calls.ended.load() != nullptr;
    const bool in_group = thread.nccl_call_depth != 0;
    switch (calls.state) {
      case GroupState::kNone:
        return calls.depth == 0 && calls.batch == nullptr && !holds && !ended && !in_group;
      case GroupState::kOpen:
        return calls.depth > 0 && !holds && !ended && !in_group;
      case GroupState::kTorn:
        return holds && !ended && !in_group;
      case GroupState::kReported:
        return calls.depth == 0 && calls.batch != nullptr && !holds && !ended && in_group;
      case GroupState::kEndedPastUs:
        return calls.depth == 0 && calls.batch == nullptr && !holds && ended && !in_group;
    }
    return false;
  }

  std::string Differences(const TornNccl& nccl, Told told, const std::vector<SeenEvent>& events) {
    std::string wrong;
    std::map<uint64_t, CollectiveEvent> recorded;
    std::map<uint32_t, std::set<uint64_t>> numbers;  // by communicator
    for (const CollectiveEvent& event : Only<CollectiveEvent>(events)) {
      if (event.count != 0 && !recorded.emplace(event.count, event).second)
        wrong += " twice:" + std::to_string(event.count);
      if (!numbers[event.comm].insert(event.seq).second)
        wrong += " number twice:" + std::to_string(event.seq);
    }
    for (uint64_t count = 1; count <= nccl.calls; ++count) {
      const bool expected = told != Told::kNothing || nccl.seen_calls.contains(count);
      if (recorded.contains(count) != expected)
        wrong += (expected ? " missing:" : " invented:") + std::to_string(count);
    }
    for (const auto& [comm, of_comm] : numbers) {
      if (creation_seen_ && *of_comm.rbegin() != of_comm.size() - 1) wrong += " numbers with gaps";
    }
    std::map<uint32_t, uint64_t> plan_of;
    for (const PlanLaunchEvent& launch : Only<PlanLaunchEvent>(events)) {
      if (!plan_of.emplace(launch.correlation, launch.plan).second) wrong += " a kernel in two plans";
    }
    std::set<uint64_t> plans;
    for (const auto& [correlation, plan] : plan_of) {
      if (!plans.insert(plan).second) wrong += " one plan for two groups";
    }
    for (const auto& [correlation, counts] : nccl.plans) {
      for (const uint64_t count : counts) {
        const auto call = recorded.find(count);
        if (call == recorded.end()) continue;
        if (!plan_of.contains(correlation) || call->second.plan != plan_of[correlation])
          wrong += " not with its kernel:" + std::to_string(count);
      }
    }
    return wrong;
  }

  std::vector<CollectiveEvent> Recorded(std::string_view program, std::string_view seen, Told told) {
    Begin();
    TornNccl nccl(told, &handle_);
    for (size_t i = 0; i < program.size(); ++i) {
      CallsAreBeingLedToUs();
      nccl.Do(program[i], seen[i] == '1');
      EXPECT_TRUE(StateIsConsistent()) << program << " " << seen << " " << i;
    }
    Settle();
    auto events = Events();
    EXPECT_EQ(Differences(nccl, told, events), "");
    return Only<CollectiveEvent>(events);
  }

  int handle_ = 0;
  bool creation_seen_ = true;
};

// What NCCL has once reported counts for the life of the process.
class TornGroupsByReport : public TornGroups, public ::testing::WithParamInterface<Told> {};
INSTANTIATE_TEST_SUITE_P(Reports, TornGroupsByReport,
                         ::testing::Values(Told::kNothing, Told::kLaunches, Told::kCalls));

// Lets every subset of a program's calls bypass the wrappers in turn.
TEST_P(TornGroupsByReport, EachCallOnceWhateverPartOfAProgramIsSeen) {
  for (const std::string_view program : {"SCCECSCE", "SCSCECEC", "CSCESCE", "SZCECSCEC", "SCEZSCZE"}) {
    for (creation_seen_ = false;; creation_seen_ = true) {
      int failures = 0;
      for (uint32_t subset = 0; subset < 1u << program.size(); ++subset) {
        std::string seen;
        for (size_t i = 0; i < program.size(); ++i) seen += (subset >> i & 1) != 0 ? '1' : '0';
        const std::string wrong = Run(program, seen, GetParam());
        if (!wrong.empty() && ++failures <= 5)
          ADD_FAILURE() << program << " seen " << seen << " creation " << creation_seen_ << ":" << wrong;
      }
      EXPECT_EQ(failures, 0);
      if (creation_seen_) break;
    }
  }
}

TEST_F(TornGroups, CallsThatWentPastUsHaveTheNumbersBeforeThoseThatWereSeen) {
  const auto calls = Recorded("CSCCCEC", "1001111", Told::kLaunches);
  ASSERT_EQ(calls.size(), 5u);
  for (const CollectiveEvent& call : calls) {
    EXPECT_EQ(call.seq, call.count - 1) << "as they were issued";
    EXPECT_EQ(call.source, call.count == 2 ? kPluginSource : kWrapperSource);
  }
}

TEST_F(TornGroups, AGroupWhoseFirstCallNcclToldIsThePluginsToItsEnd) {
  const auto calls = Recorded("SCCEC", "00111", Told::kCalls);
  ASSERT_EQ(calls.size(), 3u);
  for (const CollectiveEvent& call : calls)
    EXPECT_EQ(call.source, call.count == 3 ? kWrapperSource : kPluginSource);
}

TEST_F(TornGroups, AGroupThatEndedPastUsIsReportedByTheProbesThreadIfNoCallFollows) {
  TornNccl nccl(Told::kLaunches, &handle_);
  nccl.Do('S', true);
  nccl.Do('C', true);
  nccl.Do('E', false);
  ThreadState& thread = CurrentThread();
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
  ReportEndedGroups(thread);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty()) << "NCCL may be telling of it";
  ReportEndedGroups(thread);
  const auto events = Events();
  EXPECT_EQ(Differences(nccl, Told::kLaunches, events), "");
  // NCCL tells very late: the call has been reported.
  PluginCommunicator* plugin = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  NotePluginCall(plugin, {EntryPoint::kAllReduce, 7, -1, -1, 1, 0, 1});
  nccl.Do('C', true);
  const auto later = Only<CollectiveEvent>(Events());
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].seq, 1u);
}

TEST_F(TornGroups, WhatIsHeldAtTheEndIsReportedWithItsThread) {
  TornNccl nccl(Told::kNothing, &handle_);
  nccl.Do('S', false);
  nccl.Do('C', true);
  FlushHeld(CurrentThread());
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_NE(calls[0].thread, 0u);
  FlushHeld(CurrentThread());
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
}

TEST_F(TornGroups, WhatAThreadLeavesIsReported) {
  std::thread([this] {
    CallsAreBeingLedToUs();
    TornNccl nccl(Told::kNothing, &handle_);
    nccl.Do('S', false);
    nccl.Do('C', true);
  }).join();
  ReportEndedGroups(CurrentThread());
  ReportEndedGroups(CurrentThread());
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
}

TEST_F(TornGroups, KernelsOfCallsThatNobodySawAreLeftToTheirNames) {
  CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
  call.Begin(64, ncclFloat32, -1, -1, &handle_, nullptr);
  call.End(ncclSuccess);
  GroupEndScope end(Origin{kFirstProviderWay, EntryPoint::kGroupEnd});
  end.Begin();
  for (const uint32_t correlation : {5u, 6u}) {  // 5 is another communicator's, whose call went past us
    const Guard guard;
    NoteLaunch(guard.thread(),
               {.name = kKernel, .stream = nullptr, .context = nullptr, .correlation = correlation});
  }
  end.End(ncclSuccess);
  const auto launches = Only<PlanLaunchEvent>(Events());
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].correlation, 6u);
}

// NCCL reports an all-to-all as sends and receives, even the smallest one; they are not the application's
// calls.
TEST_F(TornGroups, SendsOfAnAllToAllAreNoCalls) {
  PluginCommunicator* plugin = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
  CallScope call(Origin{kFirstProviderWay, EntryPoint::kAlltoAll});
  call.Begin(64, ncclFloat32, -1, -1, &handle_, nullptr);
  call.End(ncclSuccess);
  GroupEndScope end(Origin{kFirstProviderWay, EntryPoint::kGroupEnd});
  end.Begin();
  {
    const Guard guard;
    NoteLaunch(guard.thread(),
               {.name = "ncclDevKernel_SendRecv", .stream = nullptr, .context = nullptr, .correlation = 5});
  }
  for (int peer = 0; peer < 4; ++peer) NotePluginCall(plugin, {EntryPoint::kSend, 7, -1, peer, 64, 0, 1});
  EndPluginGroup();
  end.End(ncclSuccess);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].op, static_cast<uint16_t>(EntryPoint::kAlltoAll));
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
