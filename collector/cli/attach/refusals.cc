#include "collector/cli/attach/refusals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/attach/target.h"
#include "collector/cli/doctor/gather.h"
#include "collector/cli/elf_facts.h"
#include "collector/cli/preload_check.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/process_stacks.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"
#include "stacks/mapped_objects.h"

namespace gpuprobe::cli::attach {
namespace {

namespace fs = std::filesystem;

constexpr char kAnew[] = "start it anew under gpuprobe run";
constexpr char kFromOutside[] = "look at it from outside: gpuprobe look ";

using Reason = std::optional<std::string>;

struct Target {
  pid_t pid = 0;
  std::string folder;
  std::vector<pid_t> threads;
  std::vector<std::string> mapped;  // files, once each
};

std::string Base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> MappedFiles(pid_t pid) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  stacks::Mappings list(pid);
  stacks::Mapping mapping;
  while (list.Next(mapping)) {
    std::string path(mapping.path);
    if (path.starts_with('/') && seen.insert(path).second) files.push_back(std::move(path));
  }
  return files;
}

bool Maps(const Target& target, std::string_view beginning) {
  return std::any_of(target.mapped.begin(), target.mapped.end(),
                     [&](const std::string& path) { return Base(path).starts_with(beginning); });
}

char StateOf(const std::string& folder) {
  const auto stat = observe::ParseStat(observe::ReadSmallFile(folder + "/stat").value_or(""));
  return stat.has_value() ? stat->state : '\0';
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat one {};
  struct stat other {};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

Reason WhyNoSuchProcess(const Target& target) {
  const std::string status = observe::ReadSmallFile(target.folder + "/status").value_or("");
  constexpr std::string_view kGroup = "\nTgid:\t";
  const size_t group = status.find(kGroup);
  if (group == std::string::npos) return "there is no such process";
  pid_t leader = 0;
  const std::string number =
      status.substr(group + kGroup.size(), status.find('\n', group + 1) - group - kGroup.size());
  if (absl::SimpleAtoi(number, &leader) && leader != target.pid)
    return absl::StrCat("it is a thread of process ", leader, "; give that number");
  return std::nullopt;
}

Reason WhyOfState(const Target& target) {
  if (HasEnded(target.pid)) return "it has ended, and its parent has not asked for its status yet";
  const char state = StateOf(target.folder);
  if (state == 'Z')
    return absl::StrCat("its main thread has ended, and of such a process the kernel shows nothing; ", kAnew);
  const auto status = observe::ParseStatus(observe::ReadSmallFile(target.folder + "/status").value_or(""));
  if (status.has_value() && status->tracer != 0) {
    std::string name =
        observe::ReadSmallFile(absl::StrCat("/proc/", status->tracer, "/comm")).value_or("?\n");
    name.pop_back();
    return absl::StrCat("it is traced by ", name, " (pid ", status->tracer, "); end that first");
  }
  if (state == 'T' || state == 't')
    return absl::StrCat("it is stopped; continue it first: kill -CONT ", target.pid);
  return std::nullopt;
}

Reason WhyNotPermitted(const Target& target) {
  if (!target.mapped.empty() &&
      observe::ReadSmallFile(absl::StrCat(target.folder, "/task/", target.pid, "/syscall")).has_value())
    return std::nullopt;
  std::error_code error;
  if (fs::read_symlink(target.folder + "/exe", error).empty() &&
      error == std::errc::no_such_file_or_directory)
    return "it is a thread of the kernel, or has ended";
  return observe::WhyNotPermitted(target.pid);
}

// Of the program itself: what no library can be loaded into.
Reason WhyOfProgram(const Target& target) {
  const int fd = open((target.folder + "/exe").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  const std::optional<ElfFacts> elf = ReadElfFacts(fd);
  if (elf.has_value() && !elf->same_architecture)
    return absl::StrCat("its program is for another architecture than this one (32-bit?); ", kFromOutside,
                        target.pid);
  if (elf.has_value() && Base(elf->interpreter).starts_with("ld-musl"))
    return absl::StrCat("it uses musl, and libgpuprobe.so is built for glibc; ", kFromOutside, target.pid);
  // Also not one that the loader was called for by name: then the program is the loader.
  if (elf.has_value() && elf->interpreter.empty() && !Maps(target, "libc.so.6") && !Maps(target, "libc-2."))
    return absl::StrCat("it is linked statically, and cannot load libraries; ", kFromOutside, target.pid);
  std::string sanitizer;
  for (const std::string& path : target.mapped) {
    if (const std::string_view name = SanitizerOf(path); !name.empty()) sanitizer = name;
  }
  if (sanitizer.empty() && !FindSymbols(fd, {"__asan_init", "__tsan_init", "__msan_init"}).empty())
    sanitizer = "a sanitizer";
  if (!sanitizer.empty())
    return absl::StrCat("it is built with ", sanitizer, ", which must know every thread; ", kAnew,
                        " --no-preload");
  return std::nullopt;
}

Reason WhyOfRecording(const Target& target) {
  if (IsRecorded(target.pid))
    return "it is recorded already; see it with gpuprobe top, or gpuprobe doctor PID";
  if (!Maps(target, "libcuda.so"))
    return Maps(target, "libgpuprobe")
               ? "it waits for the start of CUDA, and is recorded from then on; nothing needs to be done"
               : absl::StrCat("it does not use CUDA (libcuda.so is not loaded); give the process that does");
  if (const auto variables = observe::VariablesOf(target.pid);
      variables.contains("GPUPROBE_DISABLE") && variables.at("GPUPROBE_DISABLE") == "1")
    return "it was started with GPUPROBE_DISABLE=1; start it without that";
  return std::nullopt;
}

Reason WhyOfSandbox(const Target& target) {
  const auto variables = observe::VariablesOf(target.pid);
  if (variables.contains("GPUPROBE_IN_SANDBOX") && variables.at("GPUPROBE_IN_SANDBOX") == "1")
    return std::nullopt;
  const auto first = doctor::FiltersOf("/proc/1");
  for (const pid_t tid : target.threads) {
    const auto own = doctor::FiltersOf(absl::StrCat(target.folder, "/task/", tid));
    if (!own.has_value() || own->mode == 0) continue;
    if (!first.has_value() || own->mode != first->mode || own->count > first->count)
      return "it has a system-call filter (seccomp) that may kill it for what the library does; start it "
             "with "
             "GPUPROBE_IN_SANDBOX=1 if the filter allows what docs/loading.md lists";
  }
  return std::nullopt;
}

// Our own library may be there and have recorded nothing: it says itself whether it has.
Reason WhyOfLibrary(const Target& target, const std::string& library) {
  for (const std::string& path : target.mapped) {
    if (!Base(path).starts_with("libgpuprobe.so") || SameFile(target.folder + "/root" + path, library))
      continue;
    return absl::StrCat("it has another libgpuprobe.so, ", path, "; use the gpuprobe that belongs to it");
  }
  return std::nullopt;
}

Reason WhyNotVisible(const Target& target, const std::string& library, const std::string& socket_folder) {
  const std::string root = target.folder + "/root";
  if (!SameFile(root + library, library))
    return absl::StrCat("it is in another container, which has no ", library,
                        "; run a gpuprobe of that container, or mount it there under the same path");
  if (!socket_folder.empty() && !SameFile(root + socket_folder, socket_folder))
    return absl::StrCat("it is in another container, where ", socket_folder,
                        " is another folder; set XDG_RUNTIME_DIR to one that both see");
  return std::nullopt;
}

}  // namespace

std::optional<std::string> WhyNotAttachable(pid_t pid, const std::string& library,
                                            const std::string& socket_folder) {
  Target target{.pid = pid, .folder = absl::StrCat("/proc/", pid), .threads = {}, .mapped = {}};
  if (Reason why = WhyNoSuchProcess(target); why.has_value()) return why;
  target.threads = ThreadsOf(pid);
  if (Reason why = WhyOfState(target); why.has_value()) return why;
  target.mapped = MappedFiles(pid);
  if (Reason why = WhyNotPermitted(target); why.has_value()) return why;
  for (const auto look : {WhyOfProgram, WhyOfRecording, WhyOfSandbox}) {
    if (Reason why = look(target); why.has_value()) return why;
  }
  if (Reason why = WhyOfLibrary(target, library); why.has_value()) return why;
  return WhyNotVisible(target, library, socket_folder);
}

}  // namespace gpuprobe::cli::attach
