// The flight recorder's ring of one process: made, shared, and read.
//
// proto/flight_ring.h has the layout, and why it lies in /dev/shm. The run directory holds <log>.ring: while
// the process is recorded, a link to the ring; once it ended uncleanly, the ring itself. An orderly end
// leaves none. Where process and collector were killed, the link and the ring stay until the host restarts; a
// ring that its run directory does not name any more goes after a day (RemoveForsakenRings). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/store/directory.h"
#include "gpuprobe/v1/wire.pb.h"
#include "proto/flight_ring.h"

namespace gpuprobe::store {

inline constexpr char kRingSuffix[] = ".ring";

class SharedRing {
 public:
  // `log`: the process's, without suffix. `attempt`: of a launcher that starts jobs again; empty: not known.
  // An error where neither /dev/shm nor the kernel gives 64 KiB.
  static absl::StatusOr<std::unique_ptr<SharedRing>> Make(const Directory& run, const std::string& log,
                                                          const v1::Identity& identity,
                                                          const std::string& attempt);
  // Leaves the file, and the link to it, to who reads them.
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // The descriptor to pass to the process; the caller closes it. -1: it was taken before.
  int TakeDescriptor();
  // The process has ended uncleanly, or we end before it: its ring is copied into the run directory.
  absl::Status Keep(const Directory& run, flight::Ending ending, uint64_t now_ns);
  // It has ended in order.
  void Drop(const Directory& run);

 private:
  SharedRing(std::string log, std::string path, int fd, flight::Ring* ring)
      : name_(std::move(log) + kRingSuffix), path_(std::move(path)), fd_(fd), ring_(ring) {}

  std::string name_;  // in the run directory
  std::string path_;  // in /dev/shm; empty: it has no name
  int fd_;
  flight::Ring* ring_;
};

// Removes rings in /dev/shm that are older than a day, whose process is gone, and which their run directory
// does not name any more.
void RemoveForsakenRings();

// A ring as it is now, also one that is being written. NotFound where there is none (its host was restarted,
// or this is another one); DataLoss for what is no ring, or one of another release.
absl::StatusOr<std::unique_ptr<flight::Ring>> ReadRing(const std::string& path);

// Names of the rings in the run directory, also of those that cannot be read: "rank-3.ring", or with the
// folder of its host.
std::vector<std::string> RingsIn(const std::string& directory);

}  // namespace gpuprobe::store
