// The process of one user under the node's collector: it runs as that user, and everything that the user's
// programs send is read, parsed and written here. The collector itself, which is root, sees none of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "collector/recording/job_recorder.h"
#include "collector/recording/node_channel.h"

namespace gpuprobe::recording::node {

// The resources that an operator grants one user.
struct UserQuota {
  uint64_t disk_bytes;
  uint64_t memory_bytes;
  uint64_t keep_bytes;  // of one run
};

struct User {
  uid_t id = 0;
  gid_t group = 0;
  std::string name;       // the number, if the system knows no name
  bool has_name = false;  // then it has the groups that the system knows
  std::string home;       // its directory; empty: not known
};

// In a process that was just forked, with one thread: becomes the user for good and serves the connections
// that come through `channel`, until it is closed or SIGTERM. Recording goes into `home` (`path` for people),
// which is the user's. Returns the process's exit status.
int RunWorker(const User& user, int home, const std::string& path, Channel channel, const UserQuota& quota,
              const JobRecorder::Options& options);

}  // namespace gpuprobe::recording::node
