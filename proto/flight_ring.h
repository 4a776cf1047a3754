// The flight recorder's ring: 64 KiB that a process and its collector share, and that outlive both.
//
// Example: rank 3 is killed inside its 4,711th all-reduce, and its collector with it. What the probe had not
// sent is gone, but the ring says: all-reduce 4711 of the communicator of 8 ranks was entered 12 ms before
// the last sign of life, in the range "backward", at train.py:88.
//
// The collector makes the ring and passes its descriptor behind Welcome (SCM_RIGHTS); the process maps it and
// closes the descriptor. The carrier is a file in /dev/shm/gpuprobe-<uid>/ (0700), of which all pages are
// there before it is passed on, and <log>.ring in the run directory is a link to it. Why not another one:
//
//   a file in the run directory   The kernel makes each page read-only whenever it has written it back. Under
//                                 fsync every 20 ms, stores to a file on ext4 faulted 4,500 times in 8 s, up
//                                 to 4.7 ms each; in tmpfs 100 times, which is the 16 first touches and the
//                                 rest of the program. On NFS a store may wait for a server.
//   a memfd                       It can be sealed, but it is gone with its last holder: where the rank and
//                                 the collector are killed, nobody is left to read it.
//
// A store to memory without a page behind it would be a SIGBUS: posix_fallocate has provided all of them, and
// nobody but the user and root can truncate the file. Where /dev/shm has no room, the collector shares a
// sealed memfd instead: then the ring outlives the process, and not the collector.
//
// Every record ends with a check of all its words. So a record that was being written when its thread was
// killed, or that was damaged since, is recognised, and never read as something else. All zeros: never
// written. Times of the process are stamps: nanoseconds of CLOCK_REALTIME, or with kTicks set a count of the
// processor's clock, which the readings convert.
//
// Version 1. Both sides must agree exactly: a ring of another version, or size, is not mapped, and not read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gpuprobe::flight {

inline constexpr uint64_t kMagic = 0x31676e6972707067;  // "gppring1"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kRingBytes = size_t{64} << 10;
inline constexpr uint64_t kTicks = uint64_t{1} << 63;  // in a stamp

inline constexpr uint32_t kThreads = 40;  // places of the probe's pool of threads, in the order of first use
inline constexpr uint32_t kRanges = 8;    // the innermost ones of a thread
inline constexpr uint32_t kCommunicators = 64;
inline constexpr uint32_t kCalls = 4;  // the last ones of a communicator
inline constexpr uint32_t kFrames = 8;
inline constexpr uint32_t kFailures = 4;

// --- the collector's part, which it writes before it shares the ring

struct Owner {
  uint64_t magic;
  uint32_t version;
  uint32_t ring_bytes;
  int32_t rank;  // -1: not known
  int32_t local_rank;
  int32_t world_size;
  uint32_t pid;
  uint64_t process_start_ns;
  uint64_t stamp;         // the processor's clock, and the two others, read together
  uint64_t realtime_ns;   // CLOCK_REALTIME
  uint64_t monotonic_ns;  // CLOCK_MONOTONIC
  char job[256];          // texts are cut, and end with zeros
  char attempt[32];       // of a launcher that starts a job again; empty: not known
  char host[256];
  char program[512];
  char run_directory[1024];
  char name[128];  // in the run directory, of the link to the ring
  uint64_t check;
};

enum class Ending : uint32_t { kUnknown, kConnectionLost, kCollectorEnded };

struct End {
  uint64_t realtime_ns;  // when the collector saw it
  uint32_t ending;       // Ending
  uint32_t reserved;
  uint64_t check;
};

// --- the process's part. What is written often has fields of eight bytes only: a check that reads in one
// load what two stores have just written would wait for them.

// Twice a second, by the probe's thread. Readings[0] is the first; the others are written in turn.
struct Reading {
  uint64_t stamp;
  uint64_t realtime_ns;
  uint64_t monotonic_ns;
  uint64_t number;     // from 1
  uint32_t threads;    // that the pool has had at once; those beyond kThreads have no record
  uint32_t displaced;  // communicators whose record another one has taken
  uint64_t check;
};

struct Thread {
  uint64_t tid;
  uint64_t depth;     // open push/pop ranges
  uint64_t launches;  // of kernels, copies and graphs
  uint64_t launched;  // stamp of the last one; 0: none
  uint64_t changed;   // stamp of the last push or pop; 0: none
  uint64_t check;
};

// The range at depth d is in place d % kRanges; `level` is d + 1, so that one that was left there is
// recognised.
struct Range {
  uint64_t opened;  // stamp
  uint64_t level;
  uint64_t name_bytes;  // before it was cut
  char name[48];
  uint64_t check;
};

struct ThreadPlace {
  Thread thread;
  Range ranges[kRanges];
};

struct Communicator {
  uint64_t hash;
  uint64_t stamp;
  uint32_t id;  // of the probe, from 1; in place (id - 1) % kCommunicators
  int32_t rank;
  int32_t ranks;   // 0: not known
  uint32_t state;  // wire::CommunicatorState
  char name[24];
  uint64_t check;
};

// A call on a communicator. `entered`: before NCCL's function; `left`: the call, or its group, is back in the
// program, which says that it was issued and not that the GPU has done it. 0: it is inside.
struct Call {
  uint64_t number;  // of the calls seen on this communicator, from 1
  uint64_t sequence;
  uint64_t count;
  uint64_t entered;
  uint64_t left;
  uint64_t communicator;
  uint64_t tid;
  uint64_t element_bytes;
  int64_t peer;        // -1: none
  int64_t result;      // ncclResult_t, once it has left
  char operation[16];  // "AllReduce"
  uint64_t check;
};

struct CommunicatorPlace {
  Communicator communicator;
  uint64_t calls;  // the writer's count; readers use Call.number
  Call last[kCalls];
};

enum class FailureKind : uint32_t { kAllocation, kLaunch, kNccl };

struct Failure {
  uint64_t number;  // from 1
  uint64_t stamp;
  uint64_t bytes;  // of an allocation
  int32_t code;    // CUresult or ncclResult_t
  uint32_t kind;   // FailureKind
  uint32_t tid;
  uint32_t reserved;
  char call[32];
  uint64_t check;
};

struct Frame {
  char function[48];  // the ends of both texts are kept, where they are cut
  char file[80];
  uint32_t line;  // 0: not known
  uint32_t reserved;
};

// The launching thread's Python stack, as the probe's thread sampled it last.
struct Stack {
  uint64_t number;
  uint64_t realtime_ns;
  uint32_t tid;
  uint32_t frames;  // innermost first
  char call[32];    // the CUDA or NCCL function that it was in; empty: in none
  Frame frame[kFrames];
  uint64_t check;
};

struct Process {
  Reading readings[3];
  ThreadPlace threads[kThreads];
  CommunicatorPlace communicators[kCommunicators];
  Failure failures[kFailures];
  Stack stacks[2];
  uint64_t failure_count;  // the writers' counts
  uint64_t stack_count;
};

struct Ring {
  Owner owner;
  End end;
  Process process;
};
static_assert(sizeof(Ring) <= kRingBytes && std::is_trivially_copyable_v<Ring>);

// --- checks

constexpr uint64_t OddNumber(uint64_t place) {
  uint64_t x = (place + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9;
  return (x ^ (x >> 29)) | 1;
}

inline constexpr size_t kMostWords = 512;
inline constexpr std::array<uint64_t, kMostWords> kOddNumbers = [] {
  std::array<uint64_t, kMostWords> numbers{};
  for (size_t i = 0; i < kMostWords; ++i) numbers[i] = OddNumber(i);
  return numbers;
}();

// A sum of independent products, which the processor works out side by side.
template <typename Record>
[[gnu::always_inline]] inline uint64_t CheckOf(const Record& record) {
  static_assert(sizeof(Record) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Record>);
  constexpr size_t kWords = sizeof(Record) / sizeof(uint64_t) - 1;
  static_assert(kWords <= kMostWords);
  uint64_t sum = 0x6770727072696e67;
  const auto* bytes = reinterpret_cast<const char*>(&record);
#pragma GCC unroll 16
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    sum += word * kOddNumbers[i];
  }
  return sum;
}

template <typename Record>
[[gnu::always_inline]] inline void Seal(Record& record) {
  record.check = CheckOf(record);
}

enum class Condition : uint8_t { kEmpty, kWhole, kTorn };

template <typename Record>
Condition ConditionOf(const Record& record) {
  if (record.check == CheckOf(record)) return Condition::kWhole;
  static constexpr Record kZeros{};
  return std::memcmp(&record, &kZeros, sizeof(record)) == 0 ? Condition::kEmpty : Condition::kTorn;
}

}  // namespace gpuprobe::flight
