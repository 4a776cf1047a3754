// What `gpuprobe doctor` looks at, before anything is judged. What is absent was not looked at, or could not
// be known.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/cli/doctor/cupti_library.h"
#include "collector/cli/elf_facts.h"
#include "collector/cli/preload_check.h"
#include "collector/observe/cgroups.h"
#include "collector/observe/gpus_now.h"

namespace gpuprobe::cli::doctor {

using Variables = std::map<std::string, std::string>;

struct DeviceFile {
  std::string path;  // "/dev/nvidia0"
  int error = 0;     // errno of opening it
};

struct GpuFacts {
  observe::DriverNow driver;
  std::vector<DeviceFile> devices;
  std::map<pid_t, std::string> programs;  // that have a context on a GPU
};

// libgpuprobe.so
struct LibraryFacts {
  std::string path;
  std::string problem;  // why it was not found, or cannot be read; empty: it can
  bool no_exec = false;
  bool is_probe = false;  // it has the entry point that CUDA calls
  bool same_architecture = false;
};

// A command that was given, not started.
struct CommandFacts {
  std::vector<std::string> words;
  std::vector<std::string> files;  // see FilesExecuted
  int error = 0;                   // errno of executing the last one
  std::optional<ElfFacts> elf;     // of the last one
  std::string missing_loader;      // the ELF interpreter, if it is not there
  std::optional<PreloadFinding> obstacle;
  bool has_nccl = false;  // it defines NCCL's functions itself
  bool is_python = false;
  std::optional<int> ranks;  // on this host, as its options say
};

// A variable of the environment that names files.
struct NamedFile {
  std::string variable;
  std::string path;
  int error = 0;  // errno of looking at it
  bool is_probe = false;
  std::string sanitizer;  // whose runtime it is
};

struct EnvironmentFacts {
  Variables variables;
  std::vector<NamedFile> files;
  std::string hub_error;  // of GPUPROBE_HUB; empty: it is well
};

// System-call filters, as /proc/PID/status has them.
struct Filters {
  uint64_t mode = 0;
  uint64_t count = 0;
};

struct SandboxFacts {
  std::optional<Filters> own;
  std::optional<Filters> first;  // of PID 1
  bool is_first = false;         // the process is PID 1 of its namespace ...
  bool is_subreaper = false;     // ... or adopts orphans
};

struct LimitFacts {
  std::optional<uint64_t> memory_bytes;    // of address space or data; nullopt: no limit
  uint64_t descriptors = 0;                // 0: no limit
  std::optional<uint64_t> processes_left;  // nullopt: no limit, or one that does not hold for this user
  std::optional<observe::MemoryLimit> memory;
  uint32_t cpus = 0;             // that the process may run on
  uint32_t quota_millicpus = 0;  // 0: none
};

// A place where a collector may listen.
struct SocketPlace {
  enum class State : uint8_t { kNone, kAnswers, kBusy, kStale, kForeign, kForbidden, kNoSocket };
  std::string path;
  bool too_long = false;
  bool configured = false;  // by GPUPROBE_SOCKET
  bool node_wide = false;
  bool has_directory = false;
  bool is_directory = false;  // and no link
  uid_t owner = 0;            // of the directory
  mode_t mode = 0;
  bool is_ours_by_name = false;  // it must be this user's alone
  bool writable = false;
  State state = State::kNone;
  pid_t pid = 0;   // of who listens there
  uid_t user = 0;  // likewise
};

// The directory that would be recorded in.
struct RecordFacts {
  std::string path;
  std::string existing;  // the nearest one above that is there
  bool silent = false;   // its file system did not answer
  std::string refused;   // why it may not be recorded there
  bool read_only = false;
  bool writable = false;
  uint64_t free_bytes = 0;
  std::optional<uint64_t> free_files;  // nullopt: the file system does not count
  std::string network;                 // kind of network file system; empty: none
};

struct HostFacts {
  bool spans_hosts = false;
  bool wants_hub = false;     // GPUPROBE_HUB names one
  bool has_variable = false;  // the token is in the environment
  bool has_munge = false;     // its daemon answers
  std::string token_file;
  bool token_exists = false;
  uid_t token_owner = 0;
  std::string token_problem;  // of what is in it, or of who can read it
  std::string hub;            // "n1:9461"
  std::string no_hub;         // why it does not answer; empty: it does, or it was not asked
};

struct ClockFacts {
  bool synchronised = false;
};

struct StackFacts {
  std::optional<int> ptrace_scope;  // nullopt: the kernel has no such restriction
  bool capable = false;             // CAP_SYS_PTRACE
};

// A process that runs.
struct ProcessFacts {
  pid_t pid = 0;
  std::string command;
  uid_t user = 0;
  bool readable = false;   // what it has mapped
  std::string unreadable;  // why not, with the remedy
  std::string probe;       // path of the libgpuprobe.so that is mapped; empty: none
  bool probe_is_ours = false;
  bool has_thread = false;    // the probe's own
  pid_t recorded_parent = 0;  // that forked it, and has the thread; 0: none
  std::optional<bool> connected;
  bool has_driver = false;
  std::string cupti;  // path
  std::string nccl;   // path of a shared one
  bool has_nccl = false;
  std::vector<std::string> tools;  // libraries of other profilers
  uint32_t python = 0;             // PY_VERSION_HEX; 0: none, or not known
  std::string no_attach;           // why `gpuprobe attach` refuses it; empty: it does not
  std::string no_stacks;           // why its Python stacks cannot be read; empty: they can, or it has none
};

struct Facts {
  uid_t user = 0;
  std::optional<ProcessFacts> process;
  std::optional<CommandFacts> command;
  std::optional<LibraryFacts> library;
  std::optional<GpuFacts> gpus;
  std::optional<CuptiFacts> cupti;
  std::optional<EnvironmentFacts> environment;
  std::optional<SandboxFacts> sandbox;
  std::optional<LimitFacts> limits;
  std::optional<std::vector<SocketPlace>> sockets;
  std::optional<RecordFacts> records;
  std::optional<HostFacts> hosts;
  std::optional<ClockFacts> clock;
  std::optional<StackFacts> stacks;
  uint64_t keep_bytes = 0;  // what a run may take of the disk
};

}  // namespace gpuprobe::cli::doctor
