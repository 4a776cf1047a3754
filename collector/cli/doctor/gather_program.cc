#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/cli/attach/refusals.h"
#include "collector/cli/beside.h"
#include "collector/cli/doctor/gather.h"
#include "collector/cli/doctor/thresholds.h"
#include "collector/cli/stacks_screen.h"
#include "collector/observe/patience.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/process_stacks.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"
#include "collector/recording/rendezvous.h"
#include "stacks/mapped_objects.h"

namespace gpuprobe::cli::doctor {
namespace {

namespace fs = std::filesystem;

constexpr char kEntryPoint[] = "InitializeInjection";  // that CUDA calls
constexpr char kNcclFunction[] = "ncclAllReduce";
constexpr char kProbe[] = "libgpuprobe";
constexpr char kThread[] = "gpuprobe";

// Libraries that other tools put into a process: Nsight Systems, Nsight Compute, compute-sanitizer, Score-P,
// TAU.
constexpr const char* kTools[] = {"libToolsInjection",
                                  "libcuda-injection",
                                  "libInterceptorInjection",
                                  "libTreeLauncher",
                                  "libsanitizer-collection",
                                  "libscorep",
                                  "libTAU"};

std::string Base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Ranks on this host, as a launcher's options say; "gpu" and "auto" are one a GPU.
std::optional<int> RanksOf(const std::vector<std::string>& words, size_t gpus) {
  for (const char* option : {"--nproc-per-node", "--num-processes", "-np"}) {
    const std::string value = recording::OptionOf(words, option);
    int ranks = 0;
    if ((value == "gpu" || value == "auto") && gpus > 0) return static_cast<int>(gpus);
    if (absl::SimpleAtoi(value, &ranks) && ranks > 0) return ranks;
  }
  return std::nullopt;
}

void ReadProgram(const std::string& path, CommandFacts* command) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return;
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  command->elf = ReadElfFacts(fd);
  if (!command->elf.has_value()) return;
  const std::string& loader = command->elf->interpreter;
  if (!loader.empty() && access(loader.c_str(), F_OK) != 0) command->missing_loader = loader;
  command->has_nccl = !FindSymbols(fd, {kNcclFunction}).empty();
}

int ErrorOfExecuting(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EISDIR;
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

// 0 for a library of this machine; ENOENT, EACCES, or ENOEXEC for anything else.
int ErrorOfLibrary(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno;
  const std::optional<ElfFacts> elf = ReadElfFacts(fd);
  close(fd);
  return elf.has_value() && elf->same_architecture ? 0 : ENOEXEC;
}

std::string ValueIn(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

NamedFile LookAtNamed(const Variables& variables, const char* name, const std::string& path,
                      const std::string& root) {
  NamedFile file;
  file.variable = name;
  file.path = path;
  file.is_probe = Base(path).starts_with(kProbe);
  file.sanitizer = SanitizerOf(path);
  if (path.find('/') != std::string::npos) {
    file.error = ErrorOfLibrary(root + path);
    return file;
  }
  file.error = ENOENT;  // the loader's own folders apart, a name alone is found here
  const std::vector<std::string> folders =
      absl::StrSplit(ValueIn(variables, "LD_LIBRARY_PATH"), ':', absl::SkipEmpty());
  for (const std::string& folder : folders) {
    if (file.error != 0) file.error = ErrorOfLibrary(absl::StrCat(root, folder, "/", path));
  }
  return file;
}

// What a process has mapped, once each.
std::optional<std::vector<std::string>> MappedFiles(pid_t pid) {
  stacks::Mappings mappings(pid);
  if (!mappings.opened()) return std::nullopt;
  std::vector<std::string> paths;
  std::set<std::string> seen;
  stacks::Mapping mapping;
  while (mappings.Next(mapping)) {
    std::string path(mapping.path);
    if (path.starts_with('/') && seen.insert(path).second) paths.push_back(std::move(path));
  }
  if (paths.empty()) return std::nullopt;  // another user's is empty
  return paths;
}

// Inodes of its connected Unix sockets.
std::set<std::string> ConnectedSockets(pid_t pid) {
  constexpr size_t kStateField = 5;
  constexpr size_t kInodeField = 6;
  std::set<std::string> inodes;
  std::ifstream file(absl::StrCat("/proc/", pid, "/net/unix"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() > kInodeField && fields[kStateField] == "03") inodes.insert(fields[kInodeField]);
  }
  return inodes;
}

// Whether one of the probe's own descriptors is a connected socket; nullopt: not known.
std::optional<bool> IsConnected(pid_t pid) {
  rlimit limit{};
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) != 0 || limit.rlim_cur <= kOwnDescriptors)
    return std::nullopt;
  const std::set<std::string> connected = ConnectedSockets(pid);
  std::error_code error;
  for (fs::directory_iterator it(absl::StrCat("/proc/", pid, "/fd"), error), end; !error && it != end;
       it.increment(error)) {
    uint64_t number = 0;
    std::error_code ignored;
    if (!absl::SimpleAtoi(it->path().filename().string(), &number) || number < kOwnDescriptors) continue;
    std::string target = fs::read_symlink(it->path(), ignored).string();
    constexpr std::string_view kSocket = "socket:[";
    if (!target.starts_with(kSocket) || !target.ends_with(']')) continue;
    target = target.substr(kSocket.size(), target.size() - kSocket.size() - 1);
    if (connected.contains(target)) return true;
  }
  return error ? std::nullopt : std::optional(false);
}

bool HasOwnThread(pid_t pid) {
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string() == absl::StrCat(pid)) continue;
    const std::string name = observe::ReadSmallFile(it->path().string() + "/comm").value_or("");
    if (name == absl::StrCat(kThread, "\n")) return true;
  }
  return false;
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat one {};
  struct stat other {};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

void NoteMapped(const std::string& path, ProcessFacts* process) {
  const std::string name = Base(path);
  if (process->probe.empty() && name.starts_with(kProbe)) process->probe = path;
  if (name.starts_with("libcuda.so")) process->has_driver = true;
  if (process->cupti.empty() && name.starts_with("libcupti")) process->cupti = path;
  if (process->nccl.empty() && name.starts_with("libnccl.so")) process->nccl = path;
  for (const char* tool : kTools) {
    if (name.starts_with(tool)) process->tools.push_back(path);
  }
}

// Its file system may not answer.
CommandFacts LookAtCommandSoon(const std::vector<std::string>& words, size_t gpus) {
  std::optional<CommandFacts> command =
      observe::Within(kPatience, [words, gpus] { return LookAtCommand(words, gpus); });
  if (command.has_value()) return *std::move(command);
  CommandFacts silent;
  silent.words = words;
  silent.files = {words.front()};
  silent.error = ETIMEDOUT;
  return silent;
}

}  // namespace

Variables OwnVariables() { return observe::VariablesOf(getpid()); }

LibraryFacts LookAtLibrary() {
  LibraryFacts library;
  const absl::StatusOr<std::string> path = FindLibrary();
  if (!path.ok()) {
    library.problem = std::string(path.status().message());
    return library;
  }
  library.path = *path;
  const int fd = open(path->c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    library.problem = absl::StrCat(*path, " cannot be read: ", std::strerror(errno));
    return library;
  }
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  struct statvfs system {};
  library.no_exec = fstatvfs(fd, &system) == 0 && (system.f_flag & ST_NOEXEC) != 0;
  const std::optional<ElfFacts> elf = ReadElfFacts(fd);
  library.same_architecture = elf.has_value() && elf->same_architecture;
  library.is_probe = !FindSymbols(fd, {kEntryPoint}).empty();
  return library;
}

CommandFacts LookAtCommand(const std::vector<std::string>& words, size_t gpus) {
  CommandFacts command;
  command.words = words;
  command.files = FilesExecuted(words);
  command.ranks = RanksOf(words, gpus);
  if (command.files.empty()) return command;
  const std::string& file = command.files.back();
  command.error = ErrorOfExecuting(file);
  if (command.error != 0) return command;
  command.obstacle = CheckPreload(words);
  command.is_python = Base(file).starts_with("python");
  ReadProgram(file, &command);
  return command;
}

EnvironmentFacts LookAtEnvironment(Variables variables, const std::vector<std::string>& command,
                                   const std::string& root) {
  EnvironmentFacts environment;
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    if (const std::string path = ValueIn(variables, name); !path.empty())
      environment.files.push_back(LookAtNamed(variables, name, path, root));
  }
  const std::vector<std::string> preloaded =
      absl::StrSplit(ValueIn(variables, "LD_PRELOAD"), absl::ByAnyChar(": "), absl::SkipEmpty());
  for (const std::string& path : preloaded) {
    NamedFile file = LookAtNamed(variables, "LD_PRELOAD", path, root);
    if (path.find('/') == std::string::npos) file.error = 0;  // the loader looks in more places than we do
    environment.files.push_back(std::move(file));
  }
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  if (const auto meeting = recording::FindMeeting(command, variable, /*spans_hosts=*/true); !meeting.ok())
    environment.hub_error = std::string(meeting.status().message());
  environment.variables = std::move(variables);
  return environment;
}

CuptiFacts LookAtCupti(const Facts& facts) {
  ProgramLibraries program;
  if (facts.environment.has_value()) program.variables = facts.environment->variables;
  if (facts.command.has_value() && !facts.command->files.empty()) {
    program.program = facts.command->files.back();
    program.is_python = facts.command->is_python;
    if (facts.command->elf.has_value()) {
      program.needed = facts.command->elf->libraries;
      program.search_path = facts.command->elf->search_path;
    }
  }
  constexpr uint32_t kMajor = 1000;
  return FindCupti(program, facts.gpus.has_value() ? static_cast<int>(facts.gpus->driver.cuda / kMajor) : 0);
}

ProcessFacts LookAtProcess(pid_t pid, const std::string& own_library) {
  ProcessFacts process;
  process.pid = pid;
  const std::string folder = absl::StrCat("/proc/", pid);
  process.command = absl::StrJoin(observe::CommandOf(pid), " ");
  const std::optional<observe::ProcStatus> status =
      observe::ParseStatus(observe::ReadSmallFile(folder + "/status").value_or(""));
  if (status.has_value()) process.user = status->user;
  if (process.command.empty()) process.command = observe::ReadSmallFile(folder + "/comm").value_or("");
  const std::optional<std::vector<std::string>> mapped = MappedFiles(pid);
  process.readable = mapped.has_value();
  if (!process.readable) {
    std::error_code error;
    const fs::path program = fs::read_symlink(folder + "/exe", error);
    process.unreadable = program.empty() && error == std::errc::no_such_file_or_directory
                             ? "it is a thread of the kernel, or has ended"
                             : observe::WhyNotPermitted(pid);
    return process;
  }
  for (const std::string& path : *mapped) NoteMapped(path, &process);
  const std::string root = folder + "/root";
  process.probe_is_ours = !own_library.empty() && SameFile(root + process.probe, own_library);
  process.no_attach = attach::WhyNotAttachable(pid, own_library, "").value_or("");
  process.has_thread = HasOwnThread(pid);
  if (process.has_thread) process.connected = IsConnected(pid);
  if (status.has_value() && !process.has_thread &&
      SameFile(folder + "/exe", absl::StrCat("/proc/", status->parent, "/exe")) &&
      HasOwnThread(static_cast<pid_t>(status->parent)))
    process.recorded_parent = static_cast<pid_t>(status->parent);
  if (const int fd = open((folder + "/exe").c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    process.has_nccl = !FindSymbols(fd, {kNcclFunction}).empty();
    close(fd);
  }
  const observe::ProcessStacks stacks = observe::ReadStacks(pid);
  process.python = stacks.python;
  if (stacks.unreadable != stacks::Unreadable::kNo && stacks.unreadable != stacks::Unreadable::kNoInterpreter)
    process.no_stacks = WhyUnreadable(stacks);
  return process;
}

Facts GatherForCommand(const std::vector<std::string>& words, const std::string& out) {
  Facts facts;
  facts.user = geteuid();
  const Variables variables = OwnVariables();
  facts.library = LookAtLibrary();
  facts.gpus = LookAtGpus();
  if (!words.empty()) facts.command = LookAtCommandSoon(words, facts.gpus->driver.gpus.size());
  facts.environment = LookAtEnvironment(variables, words, "");
  facts.cupti = observe::Within(kPatience, [facts] { return LookAtCupti(facts); });
  facts.sandbox = LookAtSandbox();
  facts.limits = LookAtLimits();
  facts.sockets = LookAtSockets(variables, facts.user);
  std::string place = out;
  if (place.empty() && words.empty()) place = ValueIn(variables, "GPUPROBE_OUT");
  facts.records = LookAtRecords(place);
  facts.hosts = LookAtHosts(words, variables);
  facts.clock = LookAtClock();
  facts.stacks = LookAtStacks();
  return facts;
}

Facts GatherForProcess(pid_t pid) {
  Facts facts;
  const absl::StatusOr<std::string> library = FindLibrary();
  facts.process = LookAtProcess(pid, library.ok() ? *library : "");
  facts.user = facts.process->user;
  facts.gpus = LookAtGpus();
  if (!facts.process->readable) return facts;
  const std::string folder = absl::StrCat("/proc/", pid);
  const std::string root = folder + "/root";
  facts.environment = LookAtEnvironment(observe::VariablesOf(pid), observe::CommandOf(pid), root);
  if (!facts.process->cupti.empty()) {
    CuptiLibrary cupti = DescribeCupti(root + facts.process->cupti, "loaded");
    cupti.path = facts.process->cupti;
    facts.cupti = CuptiFacts{.library = std::move(cupti), .unsupported = std::nullopt};
  } else if (facts.process->has_thread) {
    facts.cupti = CuptiFacts();
  }
  SandboxFacts sandbox;
  sandbox.own = FiltersOf(folder);
  sandbox.first = FiltersOf("/proc/1");
  const std::optional<observe::ProcStatus> status =
      observe::ParseStatus(observe::ReadSmallFile(folder + "/status").value_or(""));
  // In a container of its own it has another PID 1, which may not be seen from here.
  if (status.has_value() && status->pids.size() == 1) facts.sandbox = sandbox;
  facts.sockets = LookAtSockets(facts.environment->variables, facts.user);
  return facts;
}

}  // namespace gpuprobe::cli::doctor
