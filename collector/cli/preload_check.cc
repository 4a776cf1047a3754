#include "collector/cli/preload_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/cli/elf_facts.h"

namespace gpuprobe::cli {
namespace {

// Depth of scripts whose interpreter is a script; the kernel follows four.
constexpr size_t kDeepestScript = 5;
constexpr size_t kLongestScriptLine = 256;

struct Runtime {
  std::string_view library;
  std::string_view name;
};
// Shared runtimes that check whether they come first. Statically linked runtimes do not check, and those of
// ThreadSanitizer and UndefinedBehaviorSanitizer work behind a preloaded library.
constexpr Runtime kRuntimes[] = {
    {"libasan.", "AddressSanitizer"},
    {"libclang_rt.asan", "AddressSanitizer"},
    {"libhwasan.", "HWAddressSanitizer"},
    {"libclang_rt.hwasan", "HWAddressSanitizer"},
};

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// As execvp finds it; empty if it does not.
std::string FindProgram(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  const std::vector<std::string> folders = absl::StrSplit(path == nullptr ? "/bin:/usr/bin" : path, ':');
  for (const std::string& folder : folders) {
    std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const { return fd_; }
  bool IsProgram(struct stat* status) const {
    return fd_ >= 0 && fstat(fd_, status) == 0 && S_ISREG(status->st_mode) && (status->st_mode & 0111) != 0;
  }

 private:
  int fd_;
};

// The words behind "#!": the interpreter and what stands behind it. None: not a script.
std::vector<std::string> ScriptLine(int fd) {
  std::string line(kLongestScriptLine, '\0');
  const ssize_t n = pread(fd, line.data(), line.size(), 0);
  line.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (!line.starts_with("#!")) return {};
  line.resize(std::min(line.find('\n'), line.size()));
  return absl::StrSplit(line.substr(2), absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The program that executing the words really starts: `env` executes the first word that is neither option
// nor assignment.
std::string ProgramOf(const std::vector<std::string>& words) {
  if (BaseName(words.front()) != "env") return FindProgram(words.front());
  for (size_t i = 1; i < words.size(); ++i) {
    if (!words[i].starts_with("-") && words[i].find('=') == std::string::npos) return FindProgram(words[i]);
  }
  return FindProgram(words.front());
}

bool GainsPrivileges(int fd, const struct stat& status) {
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != getegid()) return true;
  return geteuid() != 0 && fgetxattr(fd, "security.capability", nullptr, 0) > 0;
}

std::optional<PreloadFinding> CheckElf(const std::string& path, const ElfFacts& facts) {
  if (!facts.same_architecture) return PreloadFinding{PreloadObstacle::kArchitecture, path, ""};
  if (BaseName(facts.interpreter).starts_with("ld-musl")) {
    return PreloadFinding{PreloadObstacle::kMusl, path, ""};
  }
  for (const std::string& library : facts.libraries) {
    if (const std::string_view sanitizer = SanitizerOf(library); !sanitizer.empty())
      return PreloadFinding{PreloadObstacle::kSanitizer, path, std::string(sanitizer)};
  }
  return std::nullopt;
}

// `path`, if it is a script its interpreter, and so on.
std::vector<std::string> FilesFrom(std::string path) {
  std::vector<std::string> files;
  while (!path.empty() && files.size() <= kDeepestScript) {
    files.push_back(path);
    const OpenFile file(path);
    struct stat status {};
    const std::vector<std::string> script =
        file.IsProgram(&status) ? ScriptLine(file.fd()) : std::vector<std::string>();
    path = script.empty() ? "" : ProgramOf(script);
  }
  return files;
}

std::optional<PreloadFinding> CheckFile(const std::vector<std::string>& files) {
  if (files.empty()) return std::nullopt;
  const OpenFile file(files.back());
  struct stat status {};
  if (!file.IsProgram(&status)) return std::nullopt;
  const std::optional<ElfFacts> facts = ReadElfFacts(file.fd());
  if (!facts.has_value()) return std::nullopt;
  if (GainsPrivileges(file.fd(), status))
    return PreloadFinding{PreloadObstacle::kPrivileges, files.back(), ""};
  return CheckElf(files.back(), *facts);
}

}  // namespace

std::string_view SanitizerOf(std::string_view library) {
  for (const Runtime& runtime : kRuntimes) {
    if (BaseName(library).starts_with(runtime.library)) return runtime.name;
  }
  return {};
}

std::vector<std::string> FilesExecuted(const std::vector<std::string>& command) {
  return command.empty() ? std::vector<std::string>() : FilesFrom(ProgramOf(command));
}

std::optional<PreloadFinding> CheckPreload(const std::vector<std::string>& command) {
  if (command.empty()) return std::nullopt;
  if (auto finding = CheckFile(FilesExecuted(command))) return finding;
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i].find('/') == std::string::npos) continue;
    auto finding = CheckFile(FilesFrom(command[i]));
    if (finding.has_value() && finding->obstacle != PreloadObstacle::kPrivileges) return finding;
  }
  return std::nullopt;
}

std::string PreloadLine(const PreloadFinding& finding) {
  switch (finding.obstacle) {
    case PreloadObstacle::kSanitizer:
      return absl::StrCat(
          finding.program, " is built with ", finding.detail,
          ", whose runtime must be loaded first, so the probe is not preloaded; CUDA loads it. NCCL calls "
          "from libraries opened later may be missing; their kernels are recorded.");
    case PreloadObstacle::kMusl:
      return absl::StrCat(finding.program,
                          " is built for musl, which cannot load the probe, so it is not preloaded. Programs "
                          "that it starts are recorded if they use CUDA.");
    case PreloadObstacle::kArchitecture:
      return absl::StrCat(
          finding.program,
          " is built for another architecture, so the probe is not preloaded and does not record it.");
    case PreloadObstacle::kPrivileges:
      return absl::StrCat(finding.program,
                          " gains privileges when it starts (set-user-ID or capabilities), so the loader "
                          "ignores the preloaded probe; CUDA loads it. NCCL calls from libraries opened "
                          "later may be missing; their kernels are recorded.");
  }
  return {};
}

}  // namespace gpuprobe::cli
