// What is worth a word and what is not: each defect beside what nearly is one.
#include "collector/cli/doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "collector/cli/doctor/screen.h"

namespace gpuprobe::cli::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// "warning", "problem, note", of what is not ok.
std::string StatesOf(const Checks& checks) {
  std::string text;
  for (const Check& check : checks) {
    EXPECT_EQ(check.remedy.empty(), check.state == State::kOk) << check.fact;
    EXPECT_FALSE(check.fact.empty());
    const bool sentence = check.remedy.ends_with('.') || check.remedy.ends_with('?');
    EXPECT_TRUE(check.remedy.empty() || sentence) << check.remedy;
    if (check.state == State::kOk) continue;
    text += (text.empty() ? "" : ", ") + Json({check})["checks"][0]["state"].get<std::string>();
  }
  return text;
}

Facts WithVariables(Variables variables) {
  Facts facts;
  facts.environment.emplace();
  facts.environment->variables = std::move(variables);
  return facts;
}

Checks OfVariables(Variables variables) { return Diagnose(WithVariables(std::move(variables))); }

TEST(DoctorChecks, NothingLookedAtIsNothingSaid) { EXPECT_THAT(Diagnose({}), IsEmpty()); }

TEST(DoctorChecks, SettingsByTheirTable) {
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_FLUSH_MS", "10"}, {"GPUPROBE_AUTOSTART", "0"}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_FLUSH_MS", "9"}})), "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_FLUSH_MS", "500 ms"}})), "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_FLUSH_MS", ""}})), "") << "set to nothing is not set";
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_AUTOSTART", "yes"}})), "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_SOCKET", "/" + std::string(106, 'x')}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_SOCKET", "/" + std::string(107, 'x')}})), "warning");
  for (const char* ranks : {"0", "0,4-7", "3-3,4"})
    EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_RANKS", ranks}})), "");
  for (const char* ranks : {"4,0", "0-", "3,3", "-1", "0,,1", "a", "7-4"})
    EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_RANKS", ranks}})), "warning") << ranks;
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_KINDS", "kernels,graphs"}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_KINDS", "kernels, graphs"}})), "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_STEP_MARKER", "nvtx:step"}, {"GPUPROBE_START_STEP", "2"}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_STEP_MARKER", "kernel:adam"}})), "warning")
      << "the probe knows no kernels";
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_LEVEL", "full"}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_LEVEL", "idle"}})), "note") << "as it was asked for";
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_LEVEL", "windows"}})), "warning");
}

TEST(DoctorChecks, SettingsThatContradictEachOther) {
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_START_AFTER_S", "5"}, {"GPUPROBE_STOP_AFTER_S", "6"}})), "");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_START_AFTER_S", "5"}, {"GPUPROBE_STOP_AFTER_S", "5"}})),
            "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_STOP_STEP", "5"}})), "warning") << "without a marker";
}

TEST(DoctorChecks, AMisspeltSettingIsGuessed) {
  const Checks checks = OfVariables({{"GPUPROBE_KIND", "kernels"}});
  ASSERT_EQ(StatesOf(checks), "warning");
  EXPECT_EQ(checks[0].remedy, "Did you mean GPUPROBE_KINDS?");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_FROBNICATE_ALL", "1"}})), "warning");
  EXPECT_EQ(StatesOf(OfVariables({{"GPUPROBE_HTTP_TOKEN", "0123456789abcdef"}, {"GPU", "1"}})), "");
}

TEST(DoctorChecks, AnotherToolIsNamedWhereItWouldBeLoaded) {
  Facts facts = WithVariables({});
  facts.environment->files.push_back(
      {.variable = "CUDA_INJECTION64_PATH", .path = "/x.so", .error = 0, .is_probe = false, .sanitizer = ""});
  EXPECT_THAT(Diagnose(facts)[0].fact, HasSubstr("it is loaded instead of the probe"));
  facts.environment->files[0].is_probe = true;
  EXPECT_EQ(StatesOf(Diagnose(facts)), "");
}

Facts WithDriver(uint32_t cuda, size_t gpus) {
  Facts facts;
  facts.gpus.emplace();
  facts.gpus->driver.state = observe::DriverNow::State::kAnswers;
  facts.gpus->driver.version = "580.65.06";
  facts.gpus->driver.cuda = cuda;
  facts.gpus->driver.gpus.resize(gpus);
  for (size_t i = 0; i < gpus; ++i) {
    facts.gpus->driver.gpus[i].index = static_cast<uint32_t>(i);
    facts.gpus->driver.gpus[i].name = i == 0 ? "A" : "B";
  }
  return facts;
}

TEST(DoctorChecks, Drivers) {
  const Checks checks = Diagnose(WithDriver(13000, 3));
  EXPECT_EQ(StatesOf(checks), "");
  EXPECT_EQ(checks[0].fact, "NVIDIA 580.65.06, for CUDA up to 13.0");
  EXPECT_EQ(checks[1].fact, "1 x A, 2 x B");
  EXPECT_EQ(StatesOf(Diagnose(WithDriver(11080, 1))), "");
  EXPECT_EQ(StatesOf(Diagnose(WithDriver(11070, 1))), "problem");
  EXPECT_EQ(StatesOf(Diagnose(WithDriver(0, 1))), "") << "not known";
  EXPECT_EQ(StatesOf(Diagnose(WithDriver(13000, 0))), "problem");
  Facts facts = WithDriver(13000, 1);
  facts.gpus->driver.state = observe::DriverNow::State::kRefuses;
  facts.gpus->driver.error = 18;
  EXPECT_THAT(Diagnose(facts)[0].fact, HasSubstr("of different versions"));
}

TEST(DoctorChecks, AGpuForEachRank) {
  const auto states = [](const char* ranks) {
    Facts facts = WithDriver(13000, 4);
    facts.environment.emplace();
    facts.environment->variables = {
        {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "64"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", ranks}};
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states("4"), "");
  EXPECT_EQ(states("5"), "warning");
}

TEST(DoctorChecks, VisibleDevices) {
  const auto states = [](const std::string& visible) {
    Facts facts = WithDriver(13000, 4);
    facts.environment.emplace();
    facts.environment->variables["CUDA_VISIBLE_DEVICES"] = visible;
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states("0,1,2,3"), "");
  EXPECT_EQ(states("3"), "");
  EXPECT_EQ(states("GPU-1234,1"), "");
  EXPECT_EQ(states("4"), "problem") << "the first is none, so there are none";
  EXPECT_EQ(states("0,4"), "warning");
  EXPECT_EQ(states("-1"), "problem");
  EXPECT_EQ(states(""), "problem");
}

Facts WithCupti(uint32_t version, bool at_least = false) {
  Facts facts;
  facts.cupti.emplace();
  facts.cupti->library.emplace();
  facts.cupti->library->path = "/lib/libcupti.so";
  facts.cupti->library->version = version;
  facts.cupti->library->at_least = at_least;
  return facts;
}

TEST(DoctorChecks, DefectsOfCupti) {
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(130401))), "");
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(130400))), "note");
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(130000))), "warning");
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(130001))), "note");
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(130300, /*at_least=*/true))), "") << "it may be a later one";
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(0))), "") << "not known";
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(18))), "note");
  EXPECT_EQ(StatesOf(Diagnose(WithCupti(17))), "problem");
  Facts graphs = WithCupti(23);
  EXPECT_THAT(Diagnose(graphs)[0].fact, Not(HasSubstr("graphs whole")));
  graphs.environment.emplace();
  graphs.environment->variables["GPUPROBE_KINDS"] = "kernels,graphs";
  const Checks asked = Diagnose(graphs);
  EXPECT_EQ(StatesOf(asked), "warning");
  EXPECT_THAT(asked[0].fact, HasSubstr("12.5, /lib/libcupti.so"));
  EXPECT_THAT(asked[0].fact, HasSubstr("tracing CUDA graphs whole may crash"));
}

TEST(DoctorChecks, NoCupti) {
  Facts facts = WithDriver(12040, 1);
  facts.cupti.emplace();
  EXPECT_EQ(StatesOf(Diagnose(facts)), "problem");
  facts.cupti->unsupported.emplace();
  facts.cupti->unsupported->major = 13;
  EXPECT_THAT(Diagnose(facts).back().fact, HasSubstr("for a newer driver than this one (CUDA 12.4)"));
  facts.cupti->unsupported->major = 11;
  EXPECT_THAT(Diagnose(facts).back().fact, HasSubstr("older than 11.8"));
}

TEST(DoctorChecks, Sandboxes) {
  const auto states = [](std::optional<Filters> own, std::optional<Filters> first) {
    Facts facts;
    facts.sandbox.emplace();
    facts.sandbox->own = own;
    facts.sandbox->first = first;
    return StatesOf(Diagnose(facts));
  };
  constexpr Filters kNone{.mode = 0, .count = 0};
  constexpr Filters kOne{.mode = 2, .count = 1};
  constexpr Filters kTwo{.mode = 2, .count = 2};
  EXPECT_EQ(states(kNone, kNone), "");
  EXPECT_EQ(states(kOne, kOne), "") << "the container's own";
  EXPECT_EQ(states(kOne, kNone), "problem");
  EXPECT_EQ(states(kTwo, kOne), "problem");
  EXPECT_EQ(states(kOne, std::nullopt), "problem");
  EXPECT_EQ(states(std::nullopt, kOne), "");
}

Facts WithLimits(const LimitFacts& limits, int ranks = 0) {
  Facts facts;
  facts.limits = limits;
  if (ranks > 0) {
    facts.environment.emplace();
    facts.environment->variables = {{"OMPI_COMM_WORLD_RANK", "0"},
                                    {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)}};
  }
  return facts;
}

TEST(DoctorChecks, Limits) {
  const auto states = [](auto set) {
    LimitFacts limits;
    set(limits);
    return StatesOf(Diagnose(WithLimits(limits)));
  };
  EXPECT_EQ(states([](LimitFacts&) {}), "");
  EXPECT_EQ(states([](LimitFacts& l) { l.memory_bytes = 64 * kGiB; }), "");
  EXPECT_EQ(states([](LimitFacts& l) { l.memory_bytes = 8 * kGiB; }), "warning");
  EXPECT_EQ(states([](LimitFacts& l) { l.memory_bytes = 2 * kGiB; }), "problem");
  EXPECT_EQ(states([](LimitFacts& l) { l.descriptors = 1024; }), "");
  EXPECT_EQ(states([](LimitFacts& l) { l.descriptors = 512; }), "note");
  EXPECT_EQ(states([](LimitFacts& l) { l.descriptors = 32; }), "warning");
  EXPECT_EQ(states([](LimitFacts& l) { l.processes_left = 16; }), "");
  EXPECT_EQ(states([](LimitFacts& l) { l.processes_left = 15; }), "warning");
  EXPECT_EQ(states([](LimitFacts& l) { l.memory = {.limit_bytes = 9 * kGiB, .used_bytes = 7 * kGiB}; }), "");
  EXPECT_EQ(states([](LimitFacts& l) { l.memory = {.limit_bytes = 9 * kGiB, .used_bytes = 9 * kGiB - 1}; }),
            "warning");
}

TEST(DoctorChecks, AProcessorForEachRank) {
  LimitFacts limits;
  limits.cpus = 8;
  EXPECT_EQ(StatesOf(Diagnose(WithLimits(limits, 8))), "");
  EXPECT_EQ(StatesOf(Diagnose(WithLimits(limits, 9))), "warning");
  limits.quota_millicpus = 7900;
  EXPECT_EQ(StatesOf(Diagnose(WithLimits(limits, 8))), "warning");
  limits.quota_millicpus = 16000;
  EXPECT_EQ(StatesOf(Diagnose(WithLimits(limits, 8))), "") << "more than there are";
  limits.quota_millicpus = 500;
  EXPECT_EQ(StatesOf(Diagnose(WithLimits(limits))), "") << "the ranks are not known";
}

SocketPlace Own(const std::string& folder, uid_t owner, mode_t mode) {
  SocketPlace place;
  place.path = folder + "/collector.sock";
  place.has_directory = true;
  place.is_directory = true;
  place.is_ours_by_name = true;
  place.owner = owner;
  place.mode = mode;
  return place;
}

std::string SocketStates(std::vector<SocketPlace> places) {
  Facts facts;
  facts.user = 1000;
  facts.sockets = std::move(places);
  return StatesOf(Diagnose(facts));
}

TEST(DoctorChecks, PlacesForACollector) {
  const SocketPlace good = Own("/run/user/1000/gpuprobe", 1000, 0700);
  const SocketPlace foreign = Own("/tmp/gpuprobe-1000", 1001, 0700);
  const SocketPlace open = Own("/tmp/gpuprobe-1000", 1000, 0755);
  EXPECT_EQ(SocketStates({good}), "");
  EXPECT_EQ(SocketStates({good, foreign}), "") << "nobody looks at the second";
  EXPECT_EQ(SocketStates({foreign}), "problem");
  EXPECT_EQ(SocketStates({open}), "problem");
  EXPECT_EQ(SocketStates({foreign, good}), "note") << "the second is used";
  SocketPlace absent = good;
  absent.has_directory = false;
  EXPECT_EQ(SocketStates({absent}), "problem");
  absent.writable = true;
  EXPECT_EQ(SocketStates({absent}), "");
  SocketPlace running = good;
  running.state = SocketPlace::State::kAnswers;
  EXPECT_EQ(SocketStates({running, foreign}), "note");
  EXPECT_EQ(SocketStates({foreign, running}), "problem, note");
  SocketPlace others = good;
  others.state = SocketPlace::State::kForeign;
  EXPECT_EQ(SocketStates({others}), "problem");
  SocketPlace stale = good;
  stale.state = SocketPlace::State::kStale;
  EXPECT_EQ(SocketStates({stale}), "note");
}

TEST(DoctorChecks, RoomForRecords) {
  const auto states = [](auto set) {
    Facts facts;
    facts.keep_bytes = 2 * kGiB;
    facts.records.emplace();
    facts.records->path = facts.records->existing = "/data";
    facts.records->writable = true;
    facts.records->free_bytes = 100 * kGiB;
    set(*facts.records);
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states([](RecordFacts&) {}), "");
  EXPECT_EQ(states([](RecordFacts& r) { r.free_bytes = 2 * kGiB - 1; }), "warning");
  EXPECT_EQ(states([](RecordFacts& r) { r.free_bytes = 1 << 20; }), "problem");
  EXPECT_EQ(states([](RecordFacts& r) { r.free_files = 1000; }), "");
  EXPECT_EQ(states([](RecordFacts& r) { r.free_files = 999; }), "warning");
  EXPECT_EQ(states([](RecordFacts& r) { r.free_files = 0; }), "problem");
  EXPECT_EQ(states([](RecordFacts& r) { r.network = "NFS"; }), "note");
  EXPECT_EQ(states([](RecordFacts& r) { r.writable = false; }), "problem");
  EXPECT_EQ(states([](RecordFacts& r) { r.read_only = true; }), "problem");
  EXPECT_EQ(states([](RecordFacts& r) { r.silent = true; }), "problem");
  EXPECT_EQ(states([](RecordFacts& r) { r.refused = "a link"; }), "problem");
}

TEST(DoctorChecks, RankHoursAreThoseOfThePerformancePage) {
  Facts facts;
  facts.records.emplace();
  facts.records->writable = true;
  facts.records->path = "/data";
  facts.records->free_bytes = uint64_t{5000} * 28 / 10 * 3600 * 1234;
  EXPECT_THAT(Diagnose(facts)[0].fact, HasSubstr("1,234 rank-hours at 5,000 records a second"));
}

TEST(DoctorChecks, HostsOfOneJob) {
  const auto states = [](bool spans, bool synchronised, auto set) {
    Facts facts;
    facts.user = 1000;
    facts.clock = ClockFacts{.synchronised = synchronised};
    facts.hosts.emplace();
    facts.hosts->spans_hosts = spans;
    facts.hosts->token_file = "/home/me/.config/gpuprobe/hub-token";
    facts.hosts->token_exists = true;
    facts.hosts->token_owner = 1000;
    set(*facts.hosts);
    return StatesOf(Diagnose(facts));
  };
  const auto nothing = [](HostFacts&) {};
  EXPECT_EQ(states(false, true, nothing), "");
  EXPECT_EQ(states(false, false, nothing), "note");
  EXPECT_EQ(states(true, false, nothing), "warning");
  EXPECT_EQ(states(true, true, nothing), "");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.token_exists = false; }), "note");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.token_owner = 1001; }), "problem");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.token_problem = "too short"; }), "problem");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.token_file.clear(); }), "problem");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.token_problem = "too short", h.has_variable = true; }),
            "");
  EXPECT_EQ(states(true, true, [](HostFacts& h) { h.hub = "n1:9461", h.no_hub = "refused"; }), "note")
      << "it may come with the job";
  EXPECT_EQ(
      states(false, true, [](HostFacts& h) { h.wants_hub = true, h.hub = "n1:9461", h.no_hub = "refused"; }),
      "warning");
  EXPECT_EQ(states(false, true, [](HostFacts& h) { h.token_owner = 1001; }), "") << "nobody needs it";
}

TEST(DoctorChecks, WhoMayReadStacks) {
  const auto states = [](std::optional<int> scope, bool capable) {
    Facts facts;
    facts.stacks = StackFacts{.ptrace_scope = scope, .capable = capable};
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states(std::nullopt, false), "");
  EXPECT_EQ(states(0, false), "");
  EXPECT_EQ(states(1, false), "note");
  EXPECT_EQ(states(1, true), "");
  EXPECT_EQ(states(3, true), "note");
}

CommandFacts GoodCommand() {
  CommandFacts command;
  command.words = {"train"};
  command.files = {"/bin/train"};
  command.elf.emplace();
  command.elf->same_architecture = true;
  command.elf->interpreter = "/lib64/ld-linux-x86-64.so.2";
  return command;
}

TEST(DoctorChecks, Commands) {
  const auto states = [](auto set) {
    Facts facts;
    facts.command = GoodCommand();
    set(*facts.command);
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states([](CommandFacts&) {}), "");
  EXPECT_EQ(states([](CommandFacts& c) { c.files.clear(); }), "problem");
  EXPECT_EQ(states([](CommandFacts& c) { c.error = EACCES; }), "problem");
  EXPECT_EQ(states([](CommandFacts& c) { c.elf.reset(); }), "problem");
  EXPECT_EQ(states([](CommandFacts& c) { c.elf->interpreter.clear(); }), "warning");
  EXPECT_EQ(states([](CommandFacts& c) { c.missing_loader = "/lib/ld.so"; }), "problem");
  EXPECT_EQ(states([](CommandFacts& c) {
              c.obstacle = PreloadFinding{PreloadObstacle::kSanitizer, "x", "A"};
            }),
            "warning");
  EXPECT_EQ(states([](CommandFacts& c) {
              c.obstacle = PreloadFinding{PreloadObstacle::kMusl, "x", ""};
            }),
            "problem");
}

ProcessFacts Recorded() {
  ProcessFacts process;
  process.pid = 7;
  process.command = "train";
  process.readable = true;
  process.probe = "/lib/libgpuprobe.so";
  process.probe_is_ours = true;
  process.has_driver = true;
  process.has_thread = true;
  process.connected = true;
  return process;
}

TEST(DoctorChecks, ProcessesThatRun) {
  const auto states = [](auto set) {
    Facts facts;
    facts.process = Recorded();
    set(*facts.process);
    return StatesOf(Diagnose(facts));
  };
  EXPECT_EQ(states([](ProcessFacts&) {}), "");
  EXPECT_EQ(states([](ProcessFacts& p) { p.connected = std::nullopt; }), "") << "not known";
  EXPECT_EQ(states([](ProcessFacts& p) { p.connected = false; }), "warning");
  EXPECT_EQ(states([](ProcessFacts& p) { p.has_thread = false; }), "problem");
  EXPECT_EQ(states([](ProcessFacts& p) { p.has_thread = false, p.recorded_parent = 6; }), "note")
      << "a worker";
  EXPECT_EQ(states([](ProcessFacts& p) { p.has_thread = p.has_driver = false; }), "note");
  EXPECT_EQ(states([](ProcessFacts& p) { p.probe.clear(); }), "warning");
  EXPECT_EQ(states([](ProcessFacts& p) { p.readable = false; }), "warning");
  EXPECT_EQ(states([](ProcessFacts& p) { p.probe_is_ours = false; }), "note");
  EXPECT_EQ(states([](ProcessFacts& p) { p.tools = {"/x/libToolsInjection64.so"}; }), "note");
  EXPECT_EQ(states([](ProcessFacts& p) { p.no_stacks = "Python 3.6 is not supported"; }), "note");
}

TEST(DoctorScreen, RemediesStandBeneath) {
  const Checks checks = {{"GPUs", State::kOk, "4 x A", ""},
                         {"disk", State::kWarning, "/data: 1.00 GiB free", "Make room."},
                         {"clock", State::kNote, "not synchronised", "Start chronyd."}};
  EXPECT_EQ(Text(checks, {}),
            "1 warning, 1 note\n\n"
            "ok       GPUs   4 x A\n"
            "warning  disk   /data: 1.00 GiB free\n"
            "                Make room.\n"
            "note     clock  not synchronised\n"
            "                Start chronyd.\n");
  EXPECT_EQ(Verdict({checks[0], checks[2]}), "nothing stands in the way, 1 note");
  EXPECT_EQ(Verdict({checks[0]}), "nothing stands in the way");
  EXPECT_FALSE(NeedsAttention({checks[0], checks[2]}));
}

}  // namespace
}  // namespace gpuprobe::cli::doctor
