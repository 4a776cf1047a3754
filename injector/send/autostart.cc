#include "injector/send/autostart.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "injector/core/self_report.h"

namespace gpuprobe::injector {

namespace {

// Not passed on: the collector is no profiled process.
constexpr const char* kNotInherited[] = {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH",
                                         "NCCL_PROFILER_PLUGIN", "GPUPROBE_OUT"};

bool Inherited(const char* entry) noexcept {
  for (const char* name : kNotInherited) {
    const size_t length = std::strlen(name);
    if (std::strncmp(entry, name, length) == 0 && entry[length] == '=') return false;
  }
  return true;
}

// Once the collector is orphaned, the kernel reparents it to the nearest subreaper. If that is this program,
// it would find the collector among its children, and the collector ends only after the program.
bool AdoptsOrphans() noexcept {
  int adopts = 0;
  return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &adopts, 0, 0, 0) == 0 && adopts != 0);
}

constexpr char kWouldBeItsChild[] = "this process adopts orphans, so the collector would be its child";

// A folder that is ours alone, made if it does not exist.
bool OwnFolder(const char* path) noexcept {
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  struct stat status {};
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 0077) == 0;
}

template <size_t kCapacity>
bool SplitFolder(const char* path, TextBuffer<kCapacity>* folder) noexcept {
  const char* slash = std::strrchr(path, '/');
  if (slash == nullptr) {
    folder->Add(".");
  } else if (slash == path) {
    folder->Add("/");
  } else {
    folder->Add({path, static_cast<size_t>(slash - path)});
  }
  return !folder->cut();
}

void AddUtcTime(PathText* out) noexcept {
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  out->AddNumber(uint64_t{1900} + static_cast<uint64_t>(utc.tm_year), 4)
      .AddNumber(uint64_t{1} + static_cast<uint64_t>(utc.tm_mon), 2);
  out->AddNumber(static_cast<uint64_t>(utc.tm_mday), 2)
      .Add("T")
      .AddNumber(static_cast<uint64_t>(utc.tm_hour), 2);
  out->AddNumber(static_cast<uint64_t>(utc.tm_min), 2)
      .AddNumber(static_cast<uint64_t>(utc.tm_sec), 2)
      .Add("Z");
}

}  // namespace

bool Autostart::FindProgram(const char* library_path) noexcept {
  PathText folder;
  if (!SplitFolder(library_path, &folder)) return false;
  for (const char* place :
       {"/gpuprobe", "/../bin/gpuprobe", "/../../bin/gpuprobe", "/../collector/gpuprobe"}) {
    PathText candidate;
    candidate.Add(folder.view()).Add(place);
    struct stat status {};
    if (candidate.cut() || stat(candidate.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (access(candidate.c_str(), X_OK) != 0) continue;
    program_ = candidate;
    return true;
  }
  problem_ = "the gpuprobe program is not next to the library";
  return false;
}

bool Autostart::FindSocket(const SocketPlaces& places, bool* silent) noexcept {
  problem_ = "no folder for its socket";
  if (places.configured) {
    // A collector can listen there only if the folder exists and nothing else has the name.
    *silent = true;
    if (places.count == 0) return false;
    const char* path = places.paths[0].c_str();
    PathText folder;
    struct stat status {};
    if (!SplitFolder(path, &folder) || access(folder.c_str(), W_OK) != 0) return false;
    if (lstat(path, &status) == 0 && !S_ISSOCK(status.st_mode)) return false;
    *silent = false;
    socket_ = places.paths[0];
    return true;
  }
  problem_ =
      "the folder of its socket, /tmp/gpuprobe-$UID, is not this user's alone; set XDG_RUNTIME_DIR or "
      "GPUPROBE_SOCKET";
  // The last place is the node-wide one, which an operator runs.
  for (int i = 0; i + 1 < places.count; ++i) {
    PathText folder;
    if (!SplitFolder(places.paths[i].c_str(), &folder) || !OwnFolder(folder.c_str())) continue;
    socket_ = places.paths[i];
    return true;
  }
  return false;
}

void Autostart::FindDirectory(const char* out_setting, const char* executable) noexcept {
  char current[PATH_MAX] = {};
  const bool has_current = getcwd(current, sizeof(current)) != nullptr;
  if (has_current) current_.Add(current).Add("/");
  if (out_setting != nullptr && *out_setting != '\0') {
    if (*out_setting != '/') {
      if (!has_current) return;
      directory_.Add(current_.view());
    }
    directory_.Add(out_setting);
  } else {
    const char* slash = executable == nullptr ? nullptr : std::strrchr(executable, '/');
    const char* name = slash == nullptr ? executable : slash + 1;
    if (has_current && access(current, W_OK) == 0) {
      directory_.Add(current_.view()).Add("gpuprobe-runs/");
    } else {
      directory_.Add("/tmp/gpuprobe-").AddNumber(geteuid());
      if (!OwnFolder(directory_.c_str())) return directory_.Clear();
      directory_.Add("/gpuprobe-runs/");
    }
    AddUtcTime(&directory_);
    directory_.Add("-").Add(name == nullptr || *name == '\0' ? "run" : name);
  }
  if (directory_.cut()) directory_.Clear();
}

const char* Autostart::Shown(const char* directory) const noexcept {
  const size_t length = current_.view().size();
  const bool inside = length > 1 && std::strncmp(directory, current_.c_str(), length) == 0;
  return inside ? directory + length : directory;
}

bool Autostart::CopyEnvironment(const char* const* environment) noexcept {
  size_t count = 0;
  size_t bytes = 0;
  for (size_t i = 0; environment != nullptr && environment[i] != nullptr; ++i) {
    ++count;
    bytes += std::strlen(environment[i]) + 1;
  }
  if (!environment_.Map((count + 1) * sizeof(char*) + bytes + 1)) {
    problem_ = "no memory";
    return false;
  }
  environment_pointers_ = reinterpret_cast<char**>(environment_.data());
  char* text = environment_.data() + (count + 1) * sizeof(char*);
  const char* end = environment_.data() + environment_.size();
  size_t kept = 0;
  for (size_t i = 0; i < count && environment[i] != nullptr; ++i) {
    const size_t length = std::strlen(environment[i]) + 1;
    if (!Inherited(environment[i]) || length > static_cast<size_t>(end - text)) continue;
    std::memcpy(text, environment[i], length);
    environment_pointers_[kept++] = text;
    text += length;
  }
  environment_pointers_[kept] = nullptr;
  return true;
}

bool Autostart::Prepare(const char* library_path, const SocketPlaces& places, const char* const* environment,
                        bool* silent) noexcept {
  *silent = false;
  if (!FindSocket(places, silent) || !FindProgram(library_path)) return false;
  problem_ = kWouldBeItsChild;
  if (AdoptsOrphans()) return false;
  problem_ = "no writable folder";
  prepared_ = !directory_.empty() && CopyEnvironment(environment);
  return prepared_;
}

Autostart::Result Autostart::TryStart() noexcept {
  if (AdoptsOrphans()) {  // by now
    problem_ = kWouldBeItsChild;
    CountSelf(SelfCounter::kAutostartFailures);
    return Result::kFailed;
  }
  PathText lock;
  lock.Add(socket_.view()).Add(".start");
  if (!lock_.StillOurs() && !lock_.Open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600)) {
    problem_ = "its lock file cannot be created";
    CountSelf(SelfCounter::kAutostartFailures);
    return Result::kFailed;
  }
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    lock_.Close();
    return Result::kByAnother;
  }
  char collect[] = "collect";
  char autostarted[] = "--autostarted";
  char socket_option[] = "--socket";
  char out_option[] = "--out";
  char* arguments[] = {const_cast<char*>(program_.c_str()),
                       collect,
                       autostarted,
                       socket_option,
                       const_cast<char*>(socket_.c_str()),
                       out_option,
                       const_cast<char*>(directory_.c_str()),
                       nullptr};
  if (SpawnDetached(program_.c_str(), arguments, environment_pointers_) == 0) return Result::kStarted;
  problem_ = "the gpuprobe program did not start";
  CountSelf(SelfCounter::kAutostartFailures);
  ReleaseLock();
  return Result::kFailed;
}

void Autostart::ReleaseLock() noexcept { lock_.Close(); }

}  // namespace gpuprobe::injector
