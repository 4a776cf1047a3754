#include "collector/observe/process_stacks.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collector/observe/merged_frames.h"
#include "collector/observe/native_frames.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/observe/system_call.h"
#include "collector/observe/thread_copy.h"

namespace gpuprobe::observe {
namespace {

constexpr size_t kMostNativeThreads = 1024;

std::string FolderOf(pid_t pid) { return absl::StrCat("/proc/", pid); }
std::string FolderOf(pid_t pid, pid_t tid) { return absl::StrCat("/proc/", pid, "/task/", tid); }

std::string ReadCommand(const std::string& folder) {
  std::string command = ReadSmallFile(absl::StrCat(folder, "/cmdline")).value_or("");
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  return command;
}

std::set<pid_t> ThreadsOf(const std::string& folder) {
  std::set<pid_t> threads;
  DIR* const list = opendir(absl::StrCat(folder, "/task").c_str());
  if (list == nullptr) return threads;
  while (const dirent* const entry = readdir(list)) {
    const pid_t tid = std::atoi(entry->d_name);
    if (tid > 0) threads.insert(tid);
  }
  closedir(list);
  return threads;
}

// `sleeps_on`: the address of the word, if it sleeps on one.
void LookAtThread(pid_t pid, ThreadStack& thread, uint64_t* sleeps_on = nullptr) {
  const int folder = open(FolderOf(pid, thread.tid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const std::optional<ProcStat> stat = ParseStat(ReadSmallFile(folder, "stat").value_or(""));
  if (stat.has_value()) thread.state = stat->state;
  thread.name = std::string(absl::StripSuffix(ReadSmallFile(folder, "comm").value_or(""), "\n"));
  thread.call = SystemCallOf(folder, Calls::kAll);
  if (const std::optional<SystemCall> call = ParseSystemCall(ReadSmallFile(folder, "syscall").value_or(""));
      sleeps_on != nullptr && call.has_value() && call->number == SYS_futex) {
    *sleeps_on = call->first;
  }
  close(folder);
}

std::vector<PythonCall> CallsOf(const stacks::PythonStack& stack) {
  std::vector<PythonCall> calls;
  for (size_t i = 0; i < stack.size(); ++i) {
    PythonCall& call = calls.emplace_back();
    call.entry = stack[i].entry;
    call.loop = stack[i].loop;
    call.frame.function = stack[i].function;
    call.frame.file = stack[i].file;
    call.frame.line = stack[i].line;
  }
  return calls;
}

void TakeFrames(const stacks::PythonStack& stack, ThreadStack& thread) {
  thread.quality = stack.quality();
  thread.python = true;
  for (PythonCall& call : CallsOf(stack)) thread.frames.push_back(std::move(call.frame));
}

// "[<0>] do_wait+0x5b/0xe0" of /proc/PID/task/TID/stack, which is root's; else the innermost one.
std::vector<std::string> KernelFunctions(pid_t pid, pid_t tid) {
  std::vector<std::string> functions;
  const std::string stack = ReadSmallFile(absl::StrCat(FolderOf(pid, tid), "/stack")).value_or("");
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(stack, '\n', absl::SkipEmpty()))) {
    const size_t name = line.find("] ");
    if (name != std::string::npos) functions.push_back(line.substr(name + 2, line.find('+') - name - 2));
  }
  if (!functions.empty()) return functions;
  const std::string at = ReadSmallFile(absl::StrCat(FolderOf(pid, tid), "/wchan")).value_or("0");
  if (at != "0" && !at.empty()) functions.push_back(at);
  return functions;
}

// Who traces it: only one may. Empty: nobody.
std::string TracerOf(pid_t pid, pid_t tid) {
  const std::optional<ProcStatus> status =
      ParseStatus(ReadSmallFile(absl::StrCat(FolderOf(pid, tid), "/status")).value_or(""));
  if (!status.has_value() || status->tracer == 0) return "";
  const std::string name =
      ReadSmallFile(absl::StrCat(FolderOf(static_cast<pid_t>(status->tracer)), "/comm")).value_or("");
  return absl::StrCat("pid ", status->tracer,
                      name.empty() ? "" : absl::StrCat(" (", absl::StripSuffix(name, "\n"), ")"));
}

std::string WhyNotStopped(pid_t pid, const ThreadStack& thread, Stopped stopped) {
  switch (stopped) {
    case Stopped::kYes:
      return "";
    case Stopped::kNotPermitted: {
      const std::string tracer = TracerOf(pid, thread.tid);
      return tracer.empty() ? WhyNotPermitted(pid) : absl::StrCat(tracer, " traces it, and only one can");
    }
    case Stopped::kEnded:
      return "the thread has ended";
    case Stopped::kNotInTime:
      return "it is in the kernel and did not stop within the limit; it was not stopped";
    case Stopped::kNotAmd64:
      return "only 64-bit programs on x86_64 have one";
  }
  return "";
}

// Stops threads one after the other, and unwinds when all have been let go.
class NativeReader {
 public:
  NativeReader(pid_t pid, stacks::PythonProcess& python)
      : pid_(pid),
        python_(python),
        copier_(pid),
        unwinder_(pid),
        stack_(std::make_unique<stacks::PythonStack>()) {}

  // Takes the place of what `thread` has. `state`: Python's of this thread, or none.
  void Stop(const stacks::PythonThread* state, ThreadStack& thread);
  void Unwind();

 private:
  struct Pending {
    ThreadStack* thread;
    ThreadCopy copy;
    std::vector<PythonCall> python;
  };

  pid_t pid_;
  stacks::PythonProcess& python_;
  ThreadCopier copier_;
  NativeUnwinder unwinder_;
  std::unique_ptr<stacks::PythonStack> stack_;
  std::vector<Pending> pending_;
};

void NativeReader::Stop(const stacks::PythonThread* state, ThreadStack& thread) {
  if (thread.state == 'D') {
    thread.why_no_native = "it cannot be interrupted";
    thread.kernel = KernelFunctions(pid_, thread.tid);
    return;
  }
  if (thread.state == 'Z') {
    thread.why_no_native = WhyNotStopped(pid_, thread, Stopped::kEnded);
    return;
  }
  const std::string tracer = TracerOf(pid_, thread.tid);
  Pending pending{.thread = &thread, .copy = {}, .python = {}};
  if (tracer.empty()) {
    pending.copy = copier_.Copy(
        thread.tid, [&](uint64_t address) { return unwinder_.EndOfMapping(address); },
        [&](uint64_t until_ns) {
          if (state != nullptr) python_.ReadStopped(*state, until_ns, *stack_);
        });
  }
  thread.stopped_ns = pending.copy.stopped_ns;
  thread.why_no_native = WhyNotStopped(pid_, thread, pending.copy.stopped);
  if (pending.copy.stopped != Stopped::kYes) return;
  thread.frames.clear();
  if (state != nullptr) {
    thread.quality = stack_->quality();
    pending.python = CallsOf(*stack_);
  }
  pending_.push_back(std::move(pending));
}

void NativeReader::Unwind() {
  for (Pending& pending : pending_) {
    ThreadStack& thread = *pending.thread;
    const NativeStack native = unwinder_.Unwind(pending.copy);
    MergedStack merged =
        MergeFrames(native, pending.python, thread.quality != stacks::StackQuality::kOuterMissing);
    thread.frames = std::move(merged.frames);
    thread.python_apart = std::move(merged.apart);
    thread.native_cut = !native.whole;
  }
}

void ReadNative(ProcessStacks& process, const std::set<pid_t>& tids, stacks::PythonProcess& python,
                const std::map<pid_t, stacks::PythonThread>& states, Native native) {
  if (native == Native::kAllThreads) {
    const size_t with_python = process.threads.size();
    for (const pid_t tid : tids) {
      const auto end = process.threads.begin() + static_cast<ptrdiff_t>(with_python);
      if (process.threads.size() >= kMostNativeThreads ||
          std::any_of(process.threads.begin(), end, [&](const ThreadStack& t) { return t.tid == tid; })) {
        continue;
      }
      process.threads.emplace_back().tid = tid;
      LookAtThread(process.pid, process.threads.back());
    }
  }
  NativeReader reader(process.pid, python);
  for (ThreadStack& thread : process.threads) {
    if (native == Native::kMainThread && thread.tid != process.pid) continue;
    if (thread.tid == 0) {
      thread.why_no_native = "its number is not known, or it has ended";
      continue;
    }
    const auto state = states.find(thread.tid);
    reader.Stop(state == states.end() ? nullptr : &state->second, thread);
  }
  reader.Unwind();
}

}  // namespace

ProcessStacks ReadStacks(pid_t pid, Native native) {
  ProcessStacks process;
  process.pid = pid;
  const std::string folder = FolderOf(pid);
  const std::set<pid_t> threads = ThreadsOf(folder);
  if (threads.empty()) {
    process.unreadable = stacks::Unreadable::kNoProcess;
    return process;
  }
  process.command = ReadCommand(folder);
  stacks::PythonProcess python(pid);
  process.unreadable = python.Open();
  process.python = python.version();
  const auto stack = std::make_unique<stacks::PythonStack>();
  std::map<pid_t, stacks::PythonThread> states;
  std::map<pid_t, uint64_t> holders;  // state of the thread that each waits for
  python.ForEachThread([&](const stacks::PythonThread& thread) {
    if (!python.ReadStack(thread, *stack)) return;
    if (stack->size() == 0 && stack->quality() == stacks::StackQuality::kWhole) return;  // runs no Python
    ThreadStack seen;
    seen.tid = thread.tid;
    uint64_t sleeps_on = 0;
    LookAtThread(pid, seen, &sleeps_on);
    TakeFrames(*stack, seen);
    if (python.IsLock(thread, sleeps_on)) {
      seen.waits_for_python = true;
      holders.try_emplace(thread.tid, python.HolderOfLock(thread));
    }
    process.threads.push_back(std::move(seen));
    states.try_emplace(thread.tid, thread);
  });
  for (ThreadStack& thread : process.threads) {
    const auto holder = holders.find(thread.tid);
    if (holder == holders.end()) continue;
    for (const auto& [tid, state] : states) {
      if (state.state == holder->second && tid != thread.tid) thread.lock_holder = tid;
    }
  }
  const auto is_main = [&](const ThreadStack& thread) { return thread.tid == pid; };
  if (std::none_of(process.threads.begin(), process.threads.end(), is_main)) {
    ThreadStack main;
    main.tid = pid;
    LookAtThread(pid, main);
    process.threads.push_back(std::move(main));
  }
  std::stable_partition(process.threads.begin(), process.threads.end(), is_main);
  if (native != Native::kNone) ReadNative(process, threads, python, states, native);
  process.other_threads = threads.size() - std::min(threads.size(), process.threads.size());
  return process;
}

std::string WhyNotPermitted(pid_t pid) {
  const std::string folder = FolderOf(pid);
  const std::string scope = ReadSmallFile("/proc/sys/kernel/yama/ptrace_scope").value_or("0");
  const std::optional<ProcStatus> status = ParseStatus(ReadSmallFile(folder + "/status").value_or(""));
  struct stat owner {};  // root, of a process that forbids it
  const bool is_known = status.has_value() && stat((folder + "/status").c_str(), &owner) == 0;
  if (scope.front() == '3')
    return "kernel.yama.ptrace_scope is 3, which forbids it until the machine restarts";
  if (geteuid() == 0)
    return "the kernel forbids it: this container needs CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)";
  if (is_known && status->user != geteuid())
    return absl::StrCat("it belongs to another user (uid ", status->user, "); try as that user or as root");
  if (is_known && owner.st_uid != status->user)
    return "the program forbids it (prctl PR_SET_DUMPABLE); try as root";
  if (scope.front() != '0') {
    return absl::StrCat("kernel.yama.ptrace_scope is ", scope.substr(0, 1), "; try as root, or set it to 0");
  }
  return "the kernel forbids it; try as root";
}

}  // namespace gpuprobe::observe
