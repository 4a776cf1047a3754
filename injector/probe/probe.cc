#include "injector/probe/probe.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include "injector/base/environment.h"
#include "injector/base/lifecycle.h"
#include "injector/base/memory_account.h"
#include "injector/base/memory_limits.h"
#include "injector/base/program_functions.h"
#include "injector/base/roomy_stack.h"
#include "injector/base/settings.h"
#include "injector/capture/cupti/driver_calls.h"
#include "injector/capture/cupti/graph_calls.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/capture/nccl/calls.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/host_state.h"
#include "injector/core/recording.h"
#include "injector/core/sandbox.h"
#include "injector/core/self_report.h"
#include "injector/core/standard_error.h"
#include "injector/core/step_gate.h"
#include "injector/probe/parts.h"
#include "injector/probe/probe_thread.h"

namespace gpuprobe::injector {

namespace {

// Everything that lives while the probe does. Made in place and never destroyed: threads of CUPTI and of the
// program may still come in while the process exits.
struct Probe {
  Settings settings;
  Identity identity;
  SocketPlaces places;
  Connection connection;
  Autostart autostart;
  Stream stream;
  CuptiSession session{&stream};
  ProbeThread thread{&stream, &session, &connection, &autostart, &places, &identity};
  uint32_t buffer_part = 1;  // of CUPTI's buffers, where memory is limited
  size_t memory_bytes = 0;   // GPUPROBE_MEMORY_MIB
  size_t buffer_bytes = 0;   // what CUPTI's buffers may take of it
};

constexpr size_t kMemoryOfLongRings = size_t{64} << 20;  // with less, event rings are shorter
constexpr size_t kShortestQueue = size_t{2} << 20;
// What is mapped in any case, and what we cause others to map: CUPTI's library and its data, our thread's
// stack, and the 128 MiB that malloc reserves for a thread.
constexpr size_t kFixedBytes = size_t{56} << 20;
constexpr size_t kBytesOfOthers = size_t{160} << 20;
// Where memory is limited, of what is left: the program comes first, with what it may still need.
constexpr size_t kSmallestShare = 16;
constexpr size_t kSmallBufferBytes = size_t{256} << 10;  // where not even two of the usual ones can be had

alignas(Probe) char probe_storage[sizeof(Probe)];
Probe* probe = nullptr;

// What AttachProbe was called with, and what became of it.
struct Attachment {
  bool attached = false;
  char text[wire::kMostAttachBytes] = {};
  const char* variables[wire::kMostAttachVariables + 1] = {};  // in `text`, ended by null
  wire::AttachResult result = wire::AttachResult::kRecording;
};
constinit Attachment attachment{};

// Where this library is; null when that is not known. The first call comes from the constructor.
const char* LibraryPath() noexcept {
  static constinit char path[PATH_MAX] = {};
  if (path[0] != '\0') return path;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&StartProbe), &info) == 0 || info.dli_fname == nullptr ||
      realpath(info.dli_fname, path) == nullptr) {
    path[0] = '\0';
    return nullptr;
  }
  return path;
}

bool AllowedInSandbox() noexcept {
  const char* value = ReadVariable("GPUPROBE_IN_SANDBOX");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

bool Disabled() noexcept {
  const char* value = ReadVariable("GPUPROBE_DISABLE");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// Before anything else is done, and silent: a line takes a thread.
bool MustStayOut() noexcept { return Disabled() || (!AllowedInSandbox() && IsInSandbox()); }

// Keeps a reason for AttachProbe's caller.
void Refuse(wire::AttachResult why) noexcept { attachment.result = why; }

// Who attached reads our answer. The program that ran already gets no line on its standard error.
void SayUnlessAttached(std::string_view line) noexcept {
  if (!attachment.attached) SayLine(line);
}

// Copies the texts, because the caller's memory does not outlive its call. False: they do not fit.
bool TakeVariables(const char* given) noexcept {
  size_t used = 0;
  size_t count = 0;
  for (; *given != '\0'; given += std::strlen(given) + 1) {
    const size_t bytes = std::strlen(given) + 1;
    if (count == wire::kMostAttachVariables || bytes > sizeof(attachment.text) - used) return false;
    std::memcpy(attachment.text + used, given, bytes);
    attachment.variables[count++] = attachment.text + used;
    used += bytes;
  }
  return true;
}

bool Preloaded() noexcept {
  const char* value = ReadVariable("LD_PRELOAD");
  return value != nullptr && std::strstr(value, "libgpuprobe") != nullptr;
}

// "GPUPROBE_FLUSH_MS=5 is ignored: must be a whole number from 10 to 60000 ms".
void AddRejected(const Settings::Rejected& rejected, TextBuffer<1024>* line) noexcept {
  const settings::Setting& setting = settings::kSettings[rejected.index];
  line->Add(setting.name).Add("=");
  for (const char* c = rejected.value; *c != '\0'; ++c)
    line->Add(static_cast<unsigned char>(*c) < 0x20 ? "?" : std::string_view(c, 1));
  line->Add(rejected.cut ? "... is ignored: " : " is ignored: ");
  if (rejected.remedy != nullptr) {
    line->Add(rejected.remedy);
    return;
  }
  line->Add("must be ");
  if (setting.kind == settings::Kind::kText) {
    line->Add(setting.form);
  } else if (setting.kind == settings::Kind::kFlag) {
    line->Add("0 or 1");
  } else {
    line->Add("a whole number from ").AddNumber(static_cast<uint64_t>(setting.minimum)).Add(" to ");
    line->AddNumber(static_cast<uint64_t>(setting.maximum));
    if (!setting.unit.empty()) line->Add(" ").Add(setting.unit);
  }
}

// Prints lines about the environment: only about mistakes, and once per job.
void ReportSettings(const Settings& settings, const Identity& identity) noexcept {
  CountSelf(SelfCounter::kSettingsRejected, static_cast<uint64_t>(settings.rejected()));
  if (settings.unknown() > 0 && identity.local_rank <= 0) {
    TextBuffer<512> line;
    line.Add("unknown setting ").Add(settings.first_unknown());
    const std::string_view nearest = settings::NearestName(settings.first_unknown());
    if (!nearest.empty()) line.Add("; did you mean ").Add(nearest).Add("?");
    if (settings.unknown() > 1)
      line.Add(" (and ")
          .AddNumber(static_cast<uint64_t>(settings.unknown() - 1))
          .Add(" more; see gpuprobe help environment)");
    SayUnlessAttached(line.view());
  }
  if (settings.rejected() > 0 && identity.local_rank <= 0) {
    TextBuffer<1024> line;
    for (int i = 0; i < settings.rejected(); ++i) {
      if (i > 0) line.Add("; ");
      AddRejected(settings.rejected(i), &line);
    }
    SayUnlessAttached(line.view());
  }
}

// True when there is, or will be, a collector.
bool FindCollector(Probe& p) noexcept {
  p.places = FindSocketPlaces(p.settings.Text(SettingIndex("GPUPROBE_SOCKET")),
                              ReadVariable("XDG_RUNTIME_DIR"), geteuid());
  if (p.places.configured && p.places.count == 0) {
    CountSelf(SelfCounter::kConnectFailures);
    Refuse(wire::AttachResult::kNoCollector);
    if (p.identity.local_rank <= 0)
      SayUnlessAttached(
          "GPUPROBE_SOCKET is too long (limit 107 characters); nothing is recorded. Use a shorter path.");
    return false;
  }
  p.autostart.FindDirectory(p.settings.Text(SettingIndex("GPUPROBE_OUT")), p.identity.executable);
  if (p.connection.TryPlaces(p.places) >= 0) return true;
  const bool may_start = p.settings.Flag(SettingIndex("GPUPROBE_AUTOSTART"));
  const bool verbose = p.settings.Flag(SettingIndex("GPUPROBE_VERBOSE"));
  bool silent = false;
  const char* library = LibraryPath();
  if (may_start && library != nullptr && p.autostart.Prepare(library, p.places, environ, &silent)) {
    return true;
  }
  if (p.connection.busy()) return true;  // our thread tries again
  CountSelf(SelfCounter::kConnectFailures);
  Refuse(wire::AttachResult::kNoCollector);
  TextBuffer<640> line;
  line.Add("no collector at ").Add(p.places.count > 0 ? p.places.paths[0].view() : "the given socket");
  if (!may_start) {
    line.Add(", and autostart is off");
  } else {
    line.Add(", and none could be started (").Add(p.autostart.problem()).Add(")");
  }
  line.Add("; nothing is recorded. Start gpuprobe collect, or use gpuprobe run -- CMD.");
  if (verbose || (may_start && !silent)) SayUnlessAttached(line.view());
  return false;
}

void SayWhatIsCaptured(const Probe& p, CuptiSession::StartResult result) noexcept {
  TextBuffer<1536> line;
  switch (result) {
    case CuptiSession::StartResult::kCapturing:
      line.Add("capturing GPU activity with CUPTI ").AddNumber(p.session.api().version);
      line.Add(" (").Add(p.session.api().path).Add(")");
      break;
    case CuptiSession::StartResult::kNoCupti:
      line.Add("GPU activity is not captured: libcupti was not found. Add it to the loader's path.");
      break;
    case CuptiSession::StartResult::kOtherProfiler:
      line.Add("GPU activity is not captured: another profiler is using CUPTI. Run without it.");
      break;
    case CuptiSession::StartResult::kRefused:
      line.Add("GPU activity is not captured: CUPTI refused with error ")
          .AddNumber(static_cast<uint64_t>(LastCuptiError()));
      break;
    case CuptiSession::StartResult::kNoMemory:
      line.Add("GPU activity is not captured: not enough memory for its buffers");
      break;
  }
  SayUnlessAttached(line.view());
}

CuptiSession::StartResult StartSession(Probe& p) noexcept {
  const size_t buffer_bytes = static_cast<size_t>(p.settings.Number(SettingIndex("GPUPROBE_BUFFER_KIB")))
                              << 10;
  constexpr uint32_t kFewest = 2;
  const size_t most = p.buffer_bytes;
  const auto wanted = static_cast<uint32_t>(p.settings.Number(SettingIndex("GPUPROBE_BUFFERS")));
  for (uint32_t buffers = wanted / p.buffer_part; buffers >= kFewest; buffers /= 2) {
    const CuptiSession::StartResult result = p.session.Start(buffers, buffer_bytes, most);
    if (result != CuptiSession::StartResult::kNoMemory) return result;
    CountSelf(SelfCounter::kOwnAllocationFailures);
  }
  return p.session.Start(kFewest, kSmallBufferBytes, most);
}

// On the thread that calls exit(), after the handlers that were registered later than ours.
void OnExit() noexcept {
  // In this order: under a filter of the program's, the system call for our process id may kill the process.
  if (probe != nullptr && !probe->thread.finish_requested() && InWatchedProcess())
    probe->thread.Finish(ProbeThread::End::kExit);
}

// On the thread that is about to install a filter.
void EndBeforeFilter() noexcept { probe->thread.Finish(ProbeThread::End::kFilter); }

// Sets the limit of the account, whose first entry is this library's own image.
void OpenAccount(Probe& p) noexcept {
  p.memory_bytes = static_cast<size_t>(p.settings.Number(SettingIndex("GPUPROBE_MEMORY_MIB"))) << 20;
  SetMemoryLimit(p.memory_bytes);
  static_cast<void>(ChargeMemory(OwnImageBytes() - nccl::PrepareGroupBatches(), MemoryUse::kNeeded));
}

// What is left beside that which is held in any case: each of the three may take a part of it, but not all of
// them at once, because tables and names come on top.
void ShareTheRest(Probe& p) noexcept {
  constexpr size_t kReservedPart = 8;
  const size_t ordinary = p.memory_bytes - p.memory_bytes / kReservedPart;
  const size_t rest = ordinary - std::min(ordinary, HeldMemory());
  p.buffer_bytes = rest / 2;
  LimitRings(rest / 8 * 3);
  p.stream.queue.LimitMemory(std::max(kShortestQueue, rest / 4));
}

// Where memory is limited, everything is made smaller together; what then does not fit is counted.
bool MapAll(Probe& p) noexcept {
  const auto setting = static_cast<size_t>(p.settings.Number(SettingIndex("GPUPROBE_QUEUE_MIB"))) << 20;
  const size_t queue_bytes = std::min(setting, p.memory_bytes / 2);
  const size_t all_buffers = static_cast<size_t>(p.settings.Number(SettingIndex("GPUPROBE_BUFFERS"))) *
                                 static_cast<size_t>(p.settings.Number(SettingIndex("GPUPROBE_BUFFER_KIB")))
                             << 10;
  const size_t share = LimitedMemoryLeft() / kSmallestShare;
  const size_t definition_bytes = std::min(Definitions::kMostDefinitionBytes, p.memory_bytes / 32);
  size_t part = 1;
  while (part * p.memory_bytes < kMemoryOfLongRings) part *= 2;
  for (; part <= kSmallestRingPart; part *= 2) {
    const size_t queue_part = queue_bytes / part < kShortestQueue ? kShortestQueue : queue_bytes / part;
    const size_t needed =
        kAllRingBytes / part + queue_part + all_buffers / part + kFixedBytes + kBytesOfOthers;
    if (needed <= share) {
      if (MapRings(part) && p.stream.Init(queue_part, definition_bytes)) {
        p.buffer_part = static_cast<uint32_t>(part);
        ShareTheRest(p);
        return true;
      }
      UnmapRings();
    }
    CountSelf(SelfCounter::kOwnAllocationFailures);
  }
  return false;
}

// Everything up to the point from which nothing can fail any more but the thread.
bool Assemble(Probe& p) noexcept {
  p.settings.Read(attachment.attached ? attachment.variables : environ);
  FindIdentity(&p.identity);
  recording = ChooseRecording(&p.settings, p.identity, NowNs());
  step_gate.Init(ChooseSteps(&p.settings));
  ReportSettings(p.settings, p.identity);
  if (!recording.this_rank) Refuse(wire::AttachResult::kNotThisRank);
  if (!recording.this_rank || !FindCollector(p)) return false;
  OpenAccount(p);
  if (MapAll(p) && WatchForks()) return true;
  CountSelf(SelfCounter::kOwnAllocationFailures);
  Refuse(wire::AttachResult::kNoMemory);
  SayUnlessAttached(
      "the memory limit of this process (ulimit -v or -d) leaves too little for the program and the probe; "
      "nothing is recorded. Raise the limit.");
  return false;
}

void SetNvtxInjection() noexcept {
  const char* path = LibraryPath();
  if (path != nullptr) AnswerVariable("NVTX_INJECTION64_PATH", path);
}

wire::LoadedBy HowLoaded() noexcept {
  if (attachment.attached) return wire::LoadedBy::kLoadedByAttach;
  return Preloaded() ? wire::LoadedBy::kLoadedByPreload : wire::LoadedBy::kLoadedByCudaInjection;
}

// An attached recording without GPU times is of no use, so it is refused with the reason. At the start of a
// program, the rest is recorded without them.
wire::AttachResult WhyNoTimes(CuptiSession::StartResult result) noexcept {
  switch (result) {
    case CuptiSession::StartResult::kCapturing:
      return wire::AttachResult::kRecording;
    case CuptiSession::StartResult::kNoCupti:
      return wire::AttachResult::kNoCupti;
    case CuptiSession::StartResult::kOtherProfiler:
      return wire::AttachResult::kOtherProfiler;
    case CuptiSession::StartResult::kRefused:
      return wire::AttachResult::kCuptiRefused;
    case CuptiSession::StartResult::kNoMemory:
      return wire::AttachResult::kNoMemory;
  }
  return wire::AttachResult::kCuptiRefused;
}

// Leaves everything as it was, but for what has been patched: that leads to functions which pass calls on.
void GiveUpAttaching(Probe& p, wire::AttachResult why) noexcept {
  Refuse(why);
  CloseLifecycle();
  p.session.Stop();
  p.connection.Close();
}

// Once: the state is Starting.
void StartOnce() noexcept {
  FindProgramFunctions();
  auto* made = new (probe_storage) Probe;
  if (!Assemble(*made)) {
    made->connection.Close();
    Transition(LifecycleState::kStarting, LifecycleState::kOff);
    WriteLinesOnOwnThread();
    return;
  }
  if (recording.Wants(kRecordNvtx) || step_gate.watches_ranges()) SetNvtxInjection();
  // The order matters to other tools: their calls must lead to us before we take CUPTI, and we must know
  // where CUPTI is before we lead them anywhere.
  CuptiApi cupti;
  const bool has_cupti = BindCupti(&cupti);
  if (!has_cupti && attachment.attached) return GiveUpAttaching(*made, wire::AttachResult::kNoCupti);
  if (has_cupti) made->session.Bind(cupti);
  StartParts();
  if (recording.Wants(kRecordDeviceWork)) AddLaunchHooks();
  if (recording.Wants(kRecordMemory | kRecordNccl)) AddGraphHooks();
  AddWaitHooks();
  if (recording.Wants(kRecordDriver)) AddDriverCallHooks();
  const CuptiSession::StartResult result =
      has_cupti ? StartSession(*made) : CuptiSession::StartResult::kNoCupti;
  if (attachment.attached && result != CuptiSession::StartResult::kCapturing)
    return GiveUpAttaching(*made, WhyNoTimes(result));
  const bool verbose = made->settings.Flag(SettingIndex("GPUPROBE_VERBOSE"));
  if (verbose || result == CuptiSession::StartResult::kNoMemory) SayWhatIsCaptured(*made, result);

  ProbeThread::Options options;
  options.flush_ms = static_cast<int>(made->settings.Number(SettingIndex("GPUPROBE_FLUSH_MS")));
  options.exit_wait_ms = static_cast<int>(made->settings.Number(SettingIndex("GPUPROBE_EXIT_WAIT_MS")));
  options.exit_wait_is_set = made->settings.IsSet(SettingIndex("GPUPROBE_EXIT_WAIT_MS"));
  options.verbose = verbose;
  options.budget_percent =
      static_cast<uint32_t>(made->settings.Number(SettingIndex("GPUPROBE_OVERHEAD_BUDGET")));
  options.samples_host = made->settings.Flag(SettingIndex("GPUPROBE_HOST_SAMPLES"));
  const HelloFacts facts{
      .has_gpu_times = result == CuptiSession::StartResult::kCapturing && recording.Wants(kRecordDeviceWork),
      .loaded_by = HowLoaded(),
      .recording_ranks = recording.ranks,
      .steps = step_gate.rule(),
      .step_marker = made->settings.Text(SettingIndex("GPUPROBE_STEP_MARKER")),
      .wanted_directory = made->autostart.directory()};
  probe = made;
  host_clock.Start();
  Transition(LifecycleState::kStarting, LifecycleState::kLive);
  if (!made->thread.Start(options, facts)) {
    CountSelf(SelfCounter::kOwnAllocationFailures);
    return GiveUpAttaching(*made, wire::AttachResult::kNoThread);
  }
  if (!AllowedInSandbox()) end_before_filter.store(EndBeforeFilter, std::memory_order_release);
  atexit(OnExit);
}

}  // namespace

void AnnounceLibrary(char* const* kernel_environment) noexcept {
  if (MustStayOut()) return;
  const bool at_start = LoadedAtStart();
  RememberStandardError(at_start);
  const char* path = LibraryPath();
  if (path == nullptr || !at_start) return;
  const Variable variables[] = {{"CUDA_INJECTION64_PATH", path}, {"NVTX_INJECTION64_PATH", path}};
  AddBeforeMain(kernel_environment, variables, std::size(variables));
}

void StartProbe() noexcept {
  if (MustStayOut() || !Transition(LifecycleState::kOff, LifecycleState::kStarting)) return;
  RunWithRoom(StartOnce);
}

wire::AttachResult AttachProbe(const char* variables) noexcept {
  if (!Transition(LifecycleState::kOff, LifecycleState::kStarting)) return wire::AttachResult::kStartedBefore;
  attachment = Attachment{};
  attachment.attached = true;
  if (TakeVariables(variables)) {
    UseCopyOfEnvironment(attachment.variables);
  } else {
    Refuse(wire::AttachResult::kTooLong);
  }
  if (Disabled()) Refuse(wire::AttachResult::kDisabled);
  if (!AllowedInSandbox() && IsInSandbox()) Refuse(wire::AttachResult::kSandbox);
  if (attachment.result == wire::AttachResult::kRecording) {
    StartOnce();  // the thread that was made for this has the usual stack
  } else {
    Transition(LifecycleState::kStarting, LifecycleState::kOff);
  }
  return attachment.result;
}

}  // namespace gpuprobe::injector
