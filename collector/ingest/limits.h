// Limits on a server's clients. The defaults are for a collector of one's own programs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>

#include "proto/limits.h"

namespace gpuprobe::ingest {

struct ClientLimits {
  // At a time: ranks of a node are at most hundreds; `gpuprobe simulate` connects 16,384.
  size_t clients = 16384;
  // Before Hello. The probe's own Hello is 12 KiB at most.
  size_t hello_bytes = size_t{64} << 10;
  // From the connection to the end of Hello. The probe says it at once; the simulation, and a debugger,
  // later.
  std::chrono::milliseconds hello_wait{600'000};
  // One frame after Hello.
  size_t frame_bytes = wire::kMaxFrameBytes;
  // Memory for unfinished frames of all clients together; beyond, the client that holds most is dropped. A
  // batch of the probe's is mostly 0.1 MiB, and at most a few.
  size_t unfinished_bytes = size_t{1} << 30;
  // Our parent is refused. A collector that a program started is the child of the process that adopts
  // orphans: if that process waits for all of its children, neither would end before the other.
  bool refuses_parent = false;
  // Who is served besides root and the user that runs the collector, as root does to attach to their
  // programs. nullopt: nobody.
  std::optional<uid_t> other_user = std::nullopt;
};

}  // namespace gpuprobe::ingest
