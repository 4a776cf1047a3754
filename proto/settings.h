// The one table of GPUPROBE_* environment variables: the injector's parser, the program's --help and the
// table in docs/settings.md derive from it. Plain constexpr data: no allocation, no dependency, usable inside
// the profiled process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::settings {

enum class Kind { kText, kFlag, kNumber };

struct Setting {
  std::string_view name;
  Kind kind;
  std::string_view default_text;  // as a person would write it; empty: unset
  std::string_view unit;          // of a number; empty for counts and others
  int64_t minimum = 0;            // of a number, inclusive
  int64_t maximum = 0;
  std::string_view help;
  std::string_view form = {};  // of a text: its required form
};

inline constexpr Setting kSettings[] = {
    {"GPUPROBE_SOCKET", Kind::kText, "", "", 0, 0,
     "Unix socket of the collector; default: the first that answers of "
     "$XDG_RUNTIME_DIR/gpuprobe/collector.sock, /tmp/gpuprobe-$UID/collector.sock, "
     "/run/gpuprobe/collector.sock",
     "a path of at most 107 characters"},
    {"GPUPROBE_AUTOSTART", Kind::kFlag, "1", "", 0, 1, "start a collector if none answers"},
    {"GPUPROBE_OUT", Kind::kText, "", "", 0, 0,
     "run directory of an autostarted collector; default: gpuprobe-runs/<UTC time>-<name>",
     "a path of fewer than 1024 characters"},
    {"GPUPROBE_RANK", Kind::kNumber, "", "", 0, 1 << 24, "rank of this process; overrides the launcher's"},
    {"GPUPROBE_DISABLE", Kind::kFlag, "0", "", 0, 1, "1: the library does nothing"},
    {"GPUPROBE_IN_SANDBOX", Kind::kFlag, "0", "", 0, 1,
     "1: record although a system-call filter (seccomp) is in force that the container does not have; it "
     "must "
     "allow what docs/loading.md lists"},
    {"GPUPROBE_VERBOSE", Kind::kFlag, "0", "", 0, 1, "1: print a line on stderr that says what is captured"},
    {"GPUPROBE_FLUSH_MS", Kind::kNumber, "500", "ms", 10, 60000,
     "how often finished records are collected and sent"},
    {"GPUPROBE_MEMORY_MIB", Kind::kNumber, "64", "MiB", 16, 4096,
     "maximum memory of the library in the program's process, for everything that it holds; what does not "
     "fit "
     "is dropped and counted"},
    {"GPUPROBE_BUFFER_KIB", Kind::kNumber, "4096", "KiB", 64, 65536,
     "maximum size of an activity buffer; buffers are sized to hold half a second of records, so that "
     "records arrive promptly"},
    {"GPUPROBE_BUFFERS", Kind::kNumber, "16", "", 2, 256,
     "maximum number of activity buffers, allocated as needed within GPUPROBE_MEMORY_MIB; half of their "
     "memory is handed out in pieces "
     "of 64 KiB, for programs with many threads"},
    {"GPUPROBE_QUEUE_MIB", Kind::kNumber, "64", "MiB", 1, 1024,
     "memory for batches that wait for the collector, within GPUPROBE_MEMORY_MIB; beyond it, batches are "
     "dropped and counted"},
    {"GPUPROBE_KINDS", Kind::kText, "", "", 0, 0,
     "kinds to record, from kernels,copies,memsets,syncs,memory,nccl,nvtx,driver; default: all. NCCL's GPU "
     "times come from kernels. Add graphs to record CUDA graph launches as a whole instead of node by node",
     "a list of kernels, copies, memsets, syncs, memory, nccl, nvtx, driver, graphs, separated by commas"},
    {"GPUPROBE_LEVEL", Kind::kText, "full", "", 0, 0,
     "how much is recorded: full; calls, which is allocations, communicators, collectives and steps, but no "
     "launch; or idle, which is allocations and communicators. At calls and idle, everything else only while "
     "gpuprobe capture, or at calls the collector, asks for it",
     "idle, calls or full"},
    {"GPUPROBE_NCCL_TIMES", Kind::kFlag, "0", "", 0, 1,
     "at level calls: ask NCCL 2.27 or newer how long its collectives are on the GPU; NCCL's own thread then "
     "has work for each of them"},
    {"GPUPROBE_MIN_COPY_BYTES", Kind::kNumber, "0", "bytes", 0, int64_t{1} << 40,
     "smaller copies appear only in totals, not in steps and traces"},
    {"GPUPROBE_MIN_ALLOCATION_BYTES", Kind::kNumber, "0", "bytes", 0, int64_t{1} << 40,
     "smaller allocations and their releases appear only in totals, which stay exact to the byte, as do "
     "high-water marks; lists of the largest allocations omit them"},
    {"GPUPROBE_OVERHEAD_BUDGET", Kind::kNumber, "0", "%", 0, 100,
     "share of the program's time that the probe may take; if it takes more for 3 s, recording ends, and the "
     "report says when. 0: no limit"},
    {"GPUPROBE_HOST_SAMPLES", Kind::kFlag, "1", "", 0, 1,
     "note what the threads that launch are in (function, line, system call) up to 100 times a second, for "
     "at "
     "most 1 % of one core. 0: never"},
    {"GPUPROBE_RANKS", Kind::kText, "", "", 0, 0,
     "ranks to record, ascending, such as 0,4-7; default: all. A process without a rank is always recorded",
     "ascending ranks, such as 0,4-7"},
    {"GPUPROBE_START_AFTER_S", Kind::kNumber, "0", "s", 0, 31536000,
     "start recording this long after the program's first use of CUDA; allocations are always tracked"},
    {"GPUPROBE_STOP_AFTER_S", Kind::kNumber, "", "s", 1, 31536000,
     "record nothing that begins later than this after the program's first use of CUDA; must be greater than "
     "GPUPROBE_START_AFTER_S"},
    {"GPUPROBE_STEP_MARKER", Kind::kText, "", "", 0, 0,
     "definition of a step for the three settings below: nvtx:NAME (a range with this name, while it is "
     "open; * in NAME stands for any text) or collective:OP/N (N calls of OP, for programs without ranges)",
     "nvtx:NAME or collective:OP/N"},
    {"GPUPROBE_START_STEP", Kind::kNumber, "0", "", 0, int64_t{1} << 40,
     "record from this step of the program on, counted from 0; allocations are always tracked"},
    {"GPUPROBE_STOP_STEP", Kind::kNumber, "", "", 1, int64_t{1} << 40,
     "record nothing from this step on; must be greater than GPUPROBE_START_STEP"},
    {"GPUPROBE_EVERY_STEPS", Kind::kNumber, "1", "", 1, 1'000'000,
     "record only the first of every N steps, from GPUPROBE_START_STEP on"},
    {"GPUPROBE_EXIT_WAIT_MS", Kind::kNumber, "2000", "ms", 0, 60000,
     "maximum wait at exit for the last records"},
    {"GPUPROBE_GPU_HEALTH", Kind::kFlag, "1", "", 0, 1,
     "of the collector: read clocks, power, temperature and errors of the GPUs that are used from NVML, once "
     "a "
     "second, for at most a thousandth of the time. 0: never"},
    {"GPUPROBE_HUB", Kind::kText, "", "", 0, 0,
     "of gpuprobe run, in a job that spans hosts: the host that shows all of them, as HOST or HOST:PORT, or "
     "off; default: the host where the launcher lets ranks meet",
     "HOST, HOST:PORT or off"},
    {"GPUPROBE_HUB_TOKEN", Kind::kText, "", "", 0, 0,
     "of gpuprobe run, in a job that spans hosts: a secret that is the same on all of them; not passed on to "
     "the command; default: munge where it runs, else the first line of ~/.config/gpuprobe/hub-token, which "
     "is made",
     "letters, digits and - . _ ~ + /, at least 16 and at most 512"},
    {"GPUPROBE_ROLL_UP_FROM", Kind::kNumber, "512", "ranks", 1, 1'000'000'000,
     "of the collector, in a job of at least this many ranks: send its hub roll-ups, which are some hundred "
     "bytes a step, instead of all records"},
};

// The known setting closest to a misspelt name (edit distance); empty if more than a third of its letters
// differ.
constexpr std::string_view NearestName(std::string_view name) noexcept {
  constexpr size_t kLongest = 48;
  if (name.size() > kLongest) return {};
  std::string_view nearest;
  size_t fewest = 0;
  for (const Setting& setting : kSettings) {
    const std::string_view other = setting.name;
    size_t row[kLongest + 1] = {};
    for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= other.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= name.size(); ++j) {
        const size_t replaced = diagonal + (other[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        const size_t shifted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
        row[j] = replaced < shifted ? replaced : shifted;
      }
    }
    constexpr size_t kPrefixLetters = 9;  // GPUPROBE_ is never wrong here
    if (row[name.size()] * 3 > other.size() - kPrefixLetters) continue;
    if (!nearest.empty() && row[name.size()] >= fewest) continue;
    fewest = row[name.size()];
    nearest = other;
  }
  return nearest;
}

}  // namespace gpuprobe::settings
