// The one table of GPUPROBE_* environment variables: the injector's parser, the program's --help and the
// README's rows derive from it. Plain constexpr data: no allocation, no dependency, usable inside the
// profiled process.
#pragma once

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
};

inline constexpr Setting kSettings[] = {
    {"GPUPROBE_SOCKET", Kind::kText, "", "", 0, 0,
     "Unix socket of the collector; else $XDG_RUNTIME_DIR/gpuprobe/collector.sock, "
     "/tmp/gpuprobe-$UID/collector.sock, "
     "/run/gpuprobe/collector.sock, the first that answers"},
    {"GPUPROBE_AUTOSTART", Kind::kFlag, "1", "", 0, 1, "start a collector when none answers"},
    {"GPUPROBE_OUT", Kind::kText, "", "", 0, 0,
     "run directory of a collector that is started by itself; else gpuprobe-runs/<UTC time>-<name>"},
    {"GPUPROBE_RANK", Kind::kNumber, "", "", 0, 1 << 24,
     "this process's rank, before what the launcher says"},
    {"GPUPROBE_DISABLE", Kind::kFlag, "0", "", 0, 1, "1: the library does nothing at all"},
    {"GPUPROBE_VERBOSE", Kind::kFlag, "0", "", 0, 1, "1: one line on stderr that says what is captured"},
    {"GPUPROBE_FLUSH_MS", Kind::kNumber, "500", "ms", 10, 60000,
     "how often finished records are collected and sent"},
    {"GPUPROBE_BUFFER_KIB", Kind::kNumber, "4096", "KiB", 64, 65536,
     "largest size of an activity buffer; they are made to hold half a second of records, so that these come "
     "soon"},
    {"GPUPROBE_BUFFERS", Kind::kNumber, "16", "", 2, 256,
     "activity buffers, allocated as needed up to this number; half of their memory is handed out in pieces "
     "of 64 KiB, for programs of many threads"},
    {"GPUPROBE_QUEUE_MIB", Kind::kNumber, "64", "MiB", 1, 1024,
     "batches that wait for the collector; beyond it they are dropped and counted"},
    {"GPUPROBE_KINDS", Kind::kText, "", "", 0, 0,
     "what to record, of kernels,copies,memsets,syncs,memory,nccl,nvtx; else everything. NCCL's GPU times "
     "come from kernels. With graphs, launches of CUDA graphs as a whole instead of their nodes"},
    {"GPUPROBE_MIN_COPY_BYTES", Kind::kNumber, "0", "bytes", 0, int64_t{1} << 40,
     "copies of less are counted and added up, and have no record of their own: they are in the totals, not "
     "in "
     "steps and traces"},
    {"GPUPROBE_MIN_ALLOCATION_BYTES", Kind::kNumber, "0", "bytes", 0, int64_t{1} << 40,
     "allocations of less, and their releases, are counted and added up, and have no record of their own: "
     "totals and high-water marks stay right to the byte, and the largest allocations are of the others"},
    {"GPUPROBE_OVERHEAD_BUDGET", Kind::kNumber, "0", "%", 0, 100,
     "of its time that the program may spend in the probe; beyond it, detail is shed and the report says "
     "which. 0: no limit"},
    {"GPUPROBE_RANKS", Kind::kText, "", "", 0, 0,
     "ranks that record, ascending, as 0,4-7; else all. A process without a rank always records"},
    {"GPUPROBE_START_AFTER_S", Kind::kNumber, "0", "s", 0, 31536000,
     "record what happens from so long after the program's first use of CUDA; allocations are always "
     "followed"},
    {"GPUPROBE_STOP_AFTER_S", Kind::kNumber, "", "s", 1, 31536000,
     "record nothing that begins later than this after the program's first use of CUDA; greater than "
     "GPUPROBE_START_AFTER_S"},
    {"GPUPROBE_STEP_MARKER", Kind::kText, "", "", 0, 0,
     "what begins a step, for the three below: nvtx:NAME (a range, for as long as it is open; a * before or "
     "after NAME stands for anything) or collective:OP/N (N calls of OP, for programs without ranges)"},
    {"GPUPROBE_START_STEP", Kind::kNumber, "0", "", 0, int64_t{1} << 40,
     "record from this step of the program on, counted from 0; allocations are always followed"},
    {"GPUPROBE_STOP_STEP", Kind::kNumber, "", "", 1, int64_t{1} << 40,
     "record nothing from this step on; greater than GPUPROBE_START_STEP"},
    {"GPUPROBE_EVERY_STEPS", Kind::kNumber, "1", "", 1, 1'000'000,
     "record the first of so many steps only, from GPUPROBE_START_STEP on"},
    {"GPUPROBE_EXIT_WAIT_MS", Kind::kNumber, "2000", "ms", 0, 60000,
     "longest wait at exit for the last records"},
};

}  // namespace gpuprobe::settings
