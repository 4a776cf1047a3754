// Feeds a synthetic training job to a collector: gpuprobe_feed SOCKET RANKS STEPS. For trying screens by hand
// and for tests of the program.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/collector/testing/batch_builder.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int ranks = std::atoi(argv[2]);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string bytes =
        gpuprobe::testing::Stream(gpuprobe::testing::TrainingRank(rank, ranks, std::atoi(argv[3])));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      std::perror(argv[1]);
      return 1;
    }
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return 1;
      done += static_cast<size_t>(n);
    }
    close(fd);
  }
  return 0;
}
