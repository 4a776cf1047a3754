// Starts a collector when none answers, so that users need to set only one environment variable.
//
// The program must notice none of it: no child, no SIGCHLD, no open descriptor and no delay. So a short-lived
// intermediate process starts the collector, which the kernel then reparents to the nearest subreaper above,
// or to PID 1. If that is this program, no collector is started. One lock file for each socket lets exactly
// one of many ranks start it. Thread: Prepare on the starting thread (it reads the environment), TryStart on
// the probe's own. Allocation: two small mappings. Failure: an enum, a counter, and the reason in `problem`.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/base/mapping.h"
#include "injector/base/own_descriptor.h"
#include "injector/base/text.h"
#include "injector/send/connection.h"

namespace gpuprobe::injector {

using PathText = TextBuffer<PATH_MAX>;

class Autostart {
 public:
  enum class Result {
    kStarted,    // by us, just now; it will listen soon
    kByAnother,  // another process is about to
    kFailed,
  };

  Autostart() = default;
  ~Autostart() { ReleaseLock(); }
  Autostart(const Autostart&) = delete;
  Autostart& operator=(const Autostart&) = delete;

  // Finds where this process would like its run to be recorded. Before Prepare.
  void FindDirectory(const char* out_setting, const char* executable) noexcept;
  // Finds the program beside the library and the socket that it is to listen on. False when one of them is
  // missing, or there is no directory; `silent` then says whether to print nothing: the configured socket
  // cannot exist.
  bool Prepare(const char* library_path, const SocketPlaces& places, const char* const* environment,
               bool* silent) noexcept;

  // Starts the collector, unless another process holds the lock. The lock stays ours until ReleaseLock.
  Result TryStart() noexcept;
  void ReleaseLock() noexcept;

  // Prepare succeeded: a collector may be started.
  bool prepared() const noexcept { return prepared_; }

  const char* socket() const noexcept { return socket_.c_str(); }
  // Absolute; empty: none could be written.
  std::string_view directory() const noexcept { return directory_.view(); }
  // A directory as a person would write it: relative to the working directory at the start.
  const char* Shown(const char* directory) const noexcept;
  const char* problem() const noexcept { return problem_; }

 private:
  bool FindProgram(const char* library_path) noexcept;
  bool FindSocket(const SocketPlaces& places, bool* silent) noexcept;
  bool CopyEnvironment(const char* const* environment) noexcept;

  PathText program_;
  SocketPath socket_;
  PathText directory_;
  PathText current_;     // working directory, with a slash
  Mapping environment_;  // the pointers, then the texts
  char** environment_pointers_ = nullptr;
  OwnDescriptor lock_;
  bool prepared_ = false;
  const char* problem_ = "";
};

// Runs `program` detached from the caller: own session, descriptors 0-2 on /dev/null and no others, default
// signals, the given environment. 0, or an errno (that of exec included). The caller gets no SIGCHLD and has
// no child to wait for. Blocks until exec has happened.
int SpawnDetached(const char* program, char* const* arguments, char* const* environment) noexcept;

}  // namespace gpuprobe::injector
