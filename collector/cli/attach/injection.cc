#include "collector/cli/attach/injection.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/attach/parked_thread.h"
#include "collector/cli/attach/stub.h"
#include "collector/cli/attach/target.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/observe/thread_copy.h"
#include "proto/attach.h"
#include "stacks/mapped_objects.h"
#include "stacks/process_memory.h"

namespace gpuprobe::cli::attach {

#ifdef __x86_64__

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFindWait{5000};    // for a thread that may be used
constexpr milliseconds kReturnWait{2000};  // until it is back
constexpr milliseconds kLoadWait{10'000};  // for the loader, which another thread may hold
constexpr milliseconds kStartWait{30'000};
constexpr milliseconds kStopWait{200};
constexpr milliseconds kMapWait{1000};  // until the stub has its region
constexpr uint64_t kPage = 4096;

struct Part {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool executable = false;
};

struct Object {
  std::string path;
  std::vector<Part> parts;  // the first holds the file's beginning
};

struct Layout {
  std::vector<Object> objects;  // as mapped; one that is mapped twice is there twice
  std::vector<std::pair<uint64_t, uint64_t>> used;
};

Layout ReadLayout(pid_t pid) {
  Layout layout;
  stacks::Mappings list(pid);
  stacks::Mapping mapping;
  while (list.Next(mapping)) {
    layout.used.emplace_back(mapping.begin, mapping.end);
    if (!mapping.path.starts_with('/')) continue;
    if (mapping.offset == 0 && !(!layout.objects.empty() && layout.objects.back().path == mapping.path))
      layout.objects.push_back({.path = std::string(mapping.path), .parts = {}});
    if (layout.objects.empty() || layout.objects.back().path != mapping.path) continue;
    layout.objects.back().parts.push_back({mapping.begin, mapping.end, mapping.executable});
  }
  return layout;
}

bool IsNamed(const Object& object, std::string_view beginning) {
  return std::string_view(object.path).substr(object.path.rfind('/') + 1).starts_with(beginning);
}

bool FindFunctions(const stacks::ProcessMemory& memory, const Layout& layout, StubData& data) {
  const std::pair<const char*, uint64_t*> wanted[] = {{"__errno_location", &data.errno_location},
                                                      {"pthread_create", &data.pthread_create},
                                                      {"pthread_self", &data.pthread_self},
                                                      {"pthread_detach", &data.pthread_detach},
                                                      {"dlopen", &data.dlopen},
                                                      {"dlsym", &data.dlsym},
                                                      {"dlerror", &data.dlerror}};
  for (const auto& [name, address] : wanted) {
    // Before glibc 2.34 they were in three libraries.
    for (const char* library : {"libc.so.6", "libc-2.", "libpthread", "libdl"}) {
      for (const Object& object : layout.objects) {
        if (*address == 0 && IsNamed(object, library))
          *address = stacks::FindExported(memory, object.parts.front().begin, name);
      }
    }
    if (*address == 0) return false;
  }
  return true;
}

bool IsFree(const stacks::ProcessMemory& memory, uint64_t address, size_t size) {
  std::string bytes(size, '\1');
  return memory.Read(address, bytes.data(), size) && bytes.find_first_not_of('\0') == std::string::npos;
}

// Room behind the code of an object, up to the end of its last page: mapped, executable, zero and unused.
std::optional<uint64_t> RoomBehindCode(const stacks::ProcessMemory& memory, const Object& object,
                                       size_t size) {
  const uint64_t base = object.parts.front().begin;
  Elf64_Ehdr header{};
  constexpr size_t kMostHeaders = 64;
  if (!memory.Read(base, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMostHeaders)
    return std::nullopt;
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (parts.empty() || !memory.Read(base + header.e_phoff, parts.data(), parts.size() * sizeof(Elf64_Phdr)))
    return std::nullopt;
  const auto first =
      std::find_if(parts.begin(), parts.end(), [](const Elf64_Phdr& part) { return part.p_type == PT_LOAD; });
  if (first == parts.end()) return std::nullopt;
  const uint64_t bias = base - first->p_vaddr / kPage * kPage;
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const uint64_t begin = (bias + part.p_vaddr + part.p_memsz + 15) / 16 * 16;
    const uint64_t end = (begin + kPage - 1) / kPage * kPage;
    const bool is_mapped = std::any_of(object.parts.begin(), object.parts.end(), [&](const Part& each) {
      return each.executable && each.begin < begin && each.end == end;
    });
    if (is_mapped && end - begin >= size && IsFree(memory, begin, size)) return begin;
  }
  return std::nullopt;
}

std::optional<uint64_t> FindRoom(const stacks::ProcessMemory& memory, const Layout& layout, size_t size) {
  // The caller of dlopen decides into which namespace of the loader it loads. These are in the first.
  for (const char* first : {"ld-", "libc.so.6", "libc-2.", ""}) {
    for (const Object& object : layout.objects) {
      if (!IsNamed(object, first)) continue;
      if (const auto room = RoomBehindCode(memory, object, size); room.has_value()) return room;
    }
  }
  return std::nullopt;
}

// Somewhere in the middle of the largest gap, where the kernel, which begins at its end, maps nothing soon.
uint64_t ChooseRegion(const Layout& layout) {
  constexpr uint64_t kLowest = uint64_t{1} << 32;
  constexpr uint64_t kHighest = (uint64_t{1} << 47) - kPage;
  uint64_t begin = kLowest;
  std::pair<uint64_t, uint64_t> largest{kLowest, kLowest};
  for (const auto& [used_begin, used_end] : layout.used) {
    if (used_begin > begin && used_begin <= kHighest && used_begin - begin > largest.second - largest.first)
      largest = {begin, used_begin};
    begin = std::max(begin, used_end);
  }
  const uint64_t quarter = (largest.second - largest.first) / 4;
  if (quarter < 2 * kRegionBytes) return 0;
  std::random_device random;
  const uint64_t offset = (uint64_t{random()} << 20) % (2 * quarter);
  return (largest.first + quarter + offset) / kPage * kPage;
}

bool HasVectorSave() {
  uint32_t features = 0;
  uint32_t leaf = 1;
  uint32_t ignored[2];
  asm volatile("cpuid" : "+a"(leaf), "=b"(ignored[0]), "=c"(features), "=d"(ignored[1]));
  constexpr uint32_t kInUse = uint32_t{1} << 27;
  return (features & kInUse) != 0;
}

// A thread that is stopped while this lives. The kernel lets it go if we are killed.
class StoppedThread {
 public:
  explicit StoppedThread(pid_t tid) : tid_(tid) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) return;
    seized_ = true;
    if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return;
    const Clock::time_point until = Clock::now() + kStopWait;
    int status = 0;
    pid_t which = 0;
    while ((which = waitpid(tid, &status, __WALL | WNOHANG)) == 0 && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (which != tid || !WIFSTOPPED(status)) return;
    constexpr int kEventStop = 128;  // PTRACE_EVENT_STOP
    if (status >> 16 == 0) signal_ = WSTOPSIG(status);
    stopped_ = status >> 16 == kEventStop && WSTOPSIG(status) == SIGTRAP;
  }
  // A thread that has not stopped cannot be let go: it is when this thread of ours ends.
  ~StoppedThread() {
    if (seized_) ptrace(PTRACE_DETACH, tid_, nullptr, signal_);
  }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  // By us, and not also by a signal.
  bool stopped() const { return stopped_; }
  // A call that the stop would end is made to begin anew, whatever becomes of the thread here.
  bool Read(user_regs_struct& registers) const {
    iovec part{.iov_base = &registers, .iov_len = sizeof registers};
    constexpr uint64_t k64BitCode = 0x33;
    if (ptrace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof registers ||
        registers.cs != k64BitCode)
      return false;
    if (static_cast<int64_t>(registers.rax) != -EINTR || !observe::CanBeginAnew(registers.orig_rax))
      return true;
    constexpr int64_t kRestartNoHand = -514;
    registers.rax = static_cast<uint64_t>(kRestartNoHand);
    return Write(registers);
  }
  // Also where the process itself cannot write, as a debugger sets breakpoints: it gets a page of its own.
  bool WriteCode(pid_t pid, uint64_t address, const std::string& bytes) const {
    const int file = open(absl::StrCat("/proc/", pid, "/mem").c_str(), O_RDWR | O_CLOEXEC);
    ssize_t written = -1;
    if (file >= 0) {
      written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(address));
      close(file);
    }
    if (written == static_cast<ssize_t>(bytes.size())) return true;
    // From 6.12 on, kernels may forbid that, and not this.
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (ptrace(PTRACE_POKEDATA, tid_, address + at, word) != 0) return false;
    }
    return true;
  }
  bool Write(user_regs_struct registers) const {
    iovec part{.iov_base = &registers, .iov_len = sizeof registers};
    return ptrace(PTRACE_SETREGSET, tid_, NT_PRSTATUS, &part) == 0;
  }

 private:
  pid_t tid_;
  bool seized_ = false;
  bool stopped_ = false;
  int signal_ = 0;
};

// How the thread is to go on after the stub: as the kernel would have gone on with the call.
bool TakeRegisters(const stacks::ProcessMemory& memory, const user_regs_struct& now, StubData& data) {
  data.rip = now.rip;
  data.rax = now.rax;
  const auto result = static_cast<int64_t>(now.rax);
  constexpr int64_t kRestartSys = -512;
  constexpr int64_t kRestartNoHand = -514;
  constexpr int64_t kRestartBlock = -516;
  constexpr uint64_t kRestartSystemCall = 219;
  const bool again = result <= kRestartSys && result >= kRestartNoHand;
  if (again || result == kRestartBlock) {
    constexpr uint16_t kSystemCallInstruction = 0x050f;
    data.rip = now.rip - sizeof kSystemCallInstruction;
    data.rax = again ? now.orig_rax : kRestartSystemCall;
    uint16_t instruction = 0;
    if (!memory.Read(data.rip, instruction) || instruction != kSystemCallInstruction) return false;
  } else if (result == -EINTR) {
    return false;
  }
  data.rsp = now.rsp;
  data.rbx = now.rbx;
  data.rcx = now.rcx;
  data.rdx = now.rdx;
  data.rsi = now.rsi;
  data.rdi = now.rdi;
  data.rbp = now.rbp;
  data.r8 = now.r8;
  data.r9 = now.r9;
  data.r10 = now.r10;
  data.r11 = now.r11;
  data.r12 = now.r12;
  data.r13 = now.r13;
  data.r14 = now.r14;
  data.r15 = now.r15;
  data.flags = now.eflags;
  return true;
}

struct Plan {
  StubData data;
  uint64_t at = 0;
  std::string library;
  std::string variables;
};

bool WaitsAsBefore(const stacks::ProcessMemory& memory, const ParkedThread& thread,
                   const user_regs_struct& now) {
  if (now.rip != thread.rip || now.rsp != thread.rsp || !MayInterrupt(static_cast<int64_t>(now.orig_rax)))
    return false;
  return std::all_of(thread.returns.begin(), thread.returns.end(), [&](const ParkedThread::Return& call) {
    uint64_t address = 0;
    return memory.Read(call.at, address) && address == call.address;
  });
}

// True: the thread runs the stub.
bool LeadToStub(pid_t pid, const ParkedThread& thread, Plan plan) {
  const stacks::ProcessMemory memory(pid);
  const StoppedThread stopped(thread.tid);
  user_regs_struct registers{};
  if (!stopped.stopped() || !stopped.Read(registers) || !WaitsAsBefore(memory, thread, registers) ||
      !TakeRegisters(memory, registers, plan.data))
    return false;
  const std::string stub = MakeStub(plan.data, plan.at, plan.library, wire::kAttachEntry, plan.variables);
  if (!IsFree(memory, plan.at, stub.size()) || !stopped.WriteCode(pid, plan.at, stub)) return false;
  registers.rip = plan.at;
  registers.rax = 0;
  registers.orig_rax = UINT64_MAX;  // there is no call to begin anew
  return stopped.Write(registers);
}

// A tracer is a thread, and what it has not let go of is let go of when it ends. Ctrl-Z must not stop it.
bool OnThreadOfItsOwn(const std::function<bool()>& work) {
  bool done = false;
  sigset_t stops;
  sigset_t before;
  sigemptyset(&stops);
  for (const int signal : {SIGTSTP, SIGTTIN, SIGTTOU}) sigaddset(&stops, signal);
  pthread_sigmask(SIG_BLOCK, &stops, &before);
  std::thread([&] {
    observe::TakePriority();
    done = work();
  }).join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return done;
}

// Two at a time would write over each other's stub. Held by a name in the kernel, which goes with its holder;
// the process's number in its own namespace is the same for everybody.
class OneAtATime {
 public:
  explicit OneAtATime(pid_t pid) {
    const std::string folder = absl::StrCat("/proc/", pid);
    const auto status = observe::ParseStatus(observe::ReadSmallFile(folder + "/status").value_or(""));
    std::error_code error;
    const std::string space = std::filesystem::read_symlink(folder + "/ns/pid", error).string();
    const std::string name = absl::StrCat(
        "gpuprobe-attach-", space, "-",
        status.has_value() && !status->pids.empty() ? status->pids.back() : static_cast<uint32_t>(pid));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), size);  // a zero first: it has no file
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    held_ = socket_ >= 0 && bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)) == 0;
  }
  ~OneAtATime() {
    if (socket_ >= 0) close(socket_);
  }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

  bool held() const { return held_; }

 private:
  int socket_ = -1;
  bool held_ = false;
};

absl::Status WhyRefused(wire::AttachResult answer) {
  using Result = wire::AttachResult;
  switch (answer) {
    case Result::kRecording:
      return absl::OkStatus();
    case Result::kDisabled:
      return absl::FailedPreconditionError("it was started with GPUPROBE_DISABLE=1; start it without that");
    case Result::kSandbox:
      return absl::FailedPreconditionError(
          "it has a system-call filter (seccomp) that may kill it for what the library does; start it with "
          "GPUPROBE_IN_SANDBOX=1 if the filter allows what docs/loading.md lists");
    case Result::kStartedBefore:
      return absl::FailedPreconditionError(
          "it was recorded before, or is now, and that works once in a process, because CUPTI loses "
          "records when it is switched on again; start it anew under gpuprobe run");
    case Result::kNoCollector:
      return absl::UnavailableError(
          "it cannot reach the collector's socket; run gpuprobe in the same container as the process");
    case Result::kNoMemory:
      return absl::ResourceExhaustedError(
          "its memory limit (ulimit -v or -d) leaves too little; look at it from outside: gpuprobe look");
    case Result::kNoCupti:
      return absl::NotFoundError(
          "libcupti was not found by its loader; install CUDA's CUPTI for its version of CUDA");
    case Result::kOtherProfiler:
      return absl::FailedPreconditionError("another profiler uses CUPTI in it; end that one first");
    case Result::kCuptiRefused:
      return absl::InternalError("CUPTI refused to record; look at it from outside: gpuprobe look");
    case Result::kNoThread:
      return absl::ResourceExhaustedError(
          "it cannot have another thread (ulimit -u, or pids.max of its cgroup)");
    case Result::kTooLong:  // checked before
      break;
    case Result::kNotThisRank:
      return absl::FailedPreconditionError("GPUPROBE_RANKS leaves its rank out; unset it");
  }
  return absl::InternalError(absl::StrCat("the library answered ", static_cast<int>(answer)));
}

// Reads what the stub reports until it is done.
class Watch {
 public:
  Watch(pid_t pid, uint64_t region) : memory_(pid), at_(region + kStackBytes) {}

  absl::Status Await() {
    if (!AwaitUntil(kReturnWait, [](const RegionState& s) { return s.returned != 0 || s.created > 1; }))
      return WhyNot(
          "its thread did not come back from making another one in time; nothing was loaded, as far as is "
          "known");
    if (state_.created > 1)
      return absl::ResourceExhaustedError(
          "it cannot have another thread (ulimit -u, or pids.max of its cgroup); raise the limit");
    if (!AwaitUntil(kLoadWait, [](const RegionState& s) { return s.progress != Progress::kLoading; })) {
      Set(offsetof(RegionState, cancel));
      return WhyNot(
          "its dynamic loader is held by another thread, in a dlopen that does not end; try again later");
    }
    if (!AwaitUntil(kStartWait, [](const RegionState& s) { return s.progress != Progress::kStarting; }))
      return WhyNot("the library did not start in time; it may still do so, and then ends by itself");
    Set(offsetof(RegionState, read));
    if (state_.progress == Progress::kAnswered)
      return WhyRefused(static_cast<wire::AttachResult>(state_.answer));
    state_.text[sizeof state_.text - 1] = '\0';
    return absl::FailedPreconditionError(absl::StrCat("its loader refused the library: ", state_.text,
                                                      "; put a copy that it can load beside gpuprobe"));
  }

 private:
  bool AwaitUntil(milliseconds limit, bool (*done)(const RegionState&)) {
    const Clock::time_point until = Clock::now() + limit;
    const Clock::time_point mapped_until = Clock::now() + kMapWait;
    for (;;) {
      const bool readable = memory_.Read(at_, state_);
      seen_ = seen_ || readable;
      if (readable && done(state_)) return true;
      if (HasEnded(memory_.pid()) || (seen_ && !readable)) return false;
      if (Clock::now() >= (seen_ ? until : mapped_until)) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  absl::Status WhyNot(const char* otherwise) const {
    if (HasEnded(memory_.pid())) return absl::NotFoundError("it ended meanwhile");
    if (!seen_)
      return absl::ResourceExhaustedError(
          "it cannot have more memory (ulimit -v, or its cgroup), or it was just executing another program; "
          "try "
          "again");
    uint32_t word = 0;
    if (!memory_.Read(at_, word)) return absl::NotFoundError("it executed another program meanwhile");
    return absl::DeadlineExceededError(otherwise);
  }

  void Set(size_t offset) const {
    uint32_t one = 1;
    const iovec from{.iov_base = &one, .iov_len = sizeof one};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): another process's address
    const iovec to{.iov_base = reinterpret_cast<void*>(at_ + offset), .iov_len = sizeof one};
    process_vm_writev(memory_.pid(), &from, 1, &to, 1, 0);
  }

  stacks::ProcessMemory memory_;
  uint64_t at_;
  RegionState state_{};
  bool seen_ = false;
};

}  // namespace

absl::Status Inject(pid_t pid, const std::string& library, const std::vector<std::string>& variables) {
  const OneAtATime alone(pid);
  if (!alone.held()) return absl::UnavailableError("another gpuprobe attach is at work on it; try again");
  const stacks::ProcessMemory memory(pid);
  const Layout layout = ReadLayout(pid);
  Plan plan;
  plan.library = library;
  for (const std::string& variable : variables) plan.variables.append(variable).push_back('\0');
  if (variables.size() > wire::kMostAttachVariables || plan.variables.size() >= wire::kMostAttachBytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "its GPUPROBE_* variables and those of its launcher take ", plan.variables.size(),
        " bytes, of which ", wire::kMostAttachBytes, " are possible; unset some GPUPROBE_* here"));
  if (!HasVectorSave()) return absl::UnimplementedError("this processor has no XSAVE");
  if (!FindFunctions(memory, layout, plan.data))
    return absl::FailedPreconditionError(
        "its C library does not export what is needed (glibc's pthread_create and dlopen)");
  const size_t size = MakeStub(plan.data, 0, library, wire::kAttachEntry, plan.variables).size();
  const std::optional<uint64_t> room = FindRoom(memory, layout, size);
  if (!room.has_value())
    return absl::ResourceExhaustedError(
        absl::StrCat("none of its libraries has ", size,
                     " bytes of room behind its code; install gpuprobe under a "
                     "shorter path"));
  plan.at = *room;
  plan.data.region = ChooseRegion(layout);
  if (plan.data.region == 0) return absl::ResourceExhaustedError("its address space is full");
  const std::optional<std::string> why =
      FindParkedThread(pid, Clock::now() + kFindWait, [&](const ParkedThread& thread) {
        return OnThreadOfItsOwn([&] { return LeadToStub(pid, thread, plan); });
      });
  if (why.has_value()) {
    if (HasEnded(pid)) return absl::NotFoundError("it ended meanwhile");
    return absl::UnavailableError(absl::StrCat(*why, "; try again, or look at it with gpuprobe look"));
  }
  return Watch(pid, plan.data.region).Await();
}

#else

absl::Status Inject(pid_t /*pid*/, const std::string& /*library*/,
                    const std::vector<std::string>& /*variables*/) {
  return absl::UnimplementedError("attaching works on x86-64 only; start the program under gpuprobe run");
}

#endif

}  // namespace gpuprobe::cli::attach
