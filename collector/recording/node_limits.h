// How much of a node's collector one user may take. Each user has a process of their own there, so these
// limits bound that process, and the total that the operator grants.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::recording::node {

// Connections at a time. A node has 8 to 16 devices; programs with a rank for each core have hundreds.
inline constexpr size_t kClientsOfUser = 1024;
// Before Hello, and how long that may take. The probe's Hello is 12 KiB at most and sent at once.
inline constexpr size_t kHelloBytes = size_t{64} << 10;
inline constexpr std::chrono::seconds kHelloWait{5};
// One frame. The probe's largest restates 8 MiB of definitions; decoded, a frame may take twenty times as
// much.
inline constexpr size_t kFrameBytes = size_t{9} << 20;
// Unfinished frames of all of a user's clients together: the batches of 500 ranks.
inline constexpr size_t kUnfinishedBytesOfUser = size_t{64} << 20;
// Runs at a time, and how fast they may begin after that many: an array of jobs starts dozens at once.
inline constexpr size_t kRunsOfUser = 64;
inline constexpr std::chrono::seconds kRunEvery{1};
// Processes of all of a user's runs at a time, each with a log that is open: a run of short processes has
// many.
inline constexpr size_t kProcessesOfUser = 4096;
// Runs and files that are kept in a user's directory. Finished runs are the user's, and never deleted: new
// ones are refused.
inline constexpr size_t kKeptRunsOfUser = 2000;
inline constexpr size_t kKeptFilesOfUser = 100'000;
// Disk of all kept runs (--user-disk), and memory of a user's process (--user-memory): reports are made of
// what was recorded when more is needed, and a half more than that is never given.
inline constexpr uint64_t kDefaultUserDisk = uint64_t{64} << 30;
inline constexpr uint64_t kDefaultUserMemory = uint64_t{1} << 30;
// A new run gets an eighth of the disk that is left, at most --keep, and at least this.
inline constexpr uint64_t kShareOfRun = 8;
inline constexpr uint64_t kSmallestRun = uint64_t{16} << 20;
// Users at a time. A rootless container's user may be many.
inline constexpr size_t kUsers = 64;
// After a user's process died, another one is started at most this often.
inline constexpr std::chrono::seconds kRestartWait{1};
// Lines in the operator's log.
inline constexpr size_t kLineBytes = 3000;
// Time for reports when the collector is asked to end; after that its processes are killed.
inline constexpr std::chrono::seconds kEndWait{20};

}  // namespace gpuprobe::recording::node
