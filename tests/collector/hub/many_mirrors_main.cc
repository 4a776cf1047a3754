// many_mirrors HUB-PORT JOB SOURCE SECONDS: sends a run of many hosts to a hub on this host as its hosts
// would, each from a thread of its own.
//
// SOURCE has a folder of logs for each host (`gpuprobe simulate --hosts`). Each of them grows evenly in a
// copy, and is whole after SECONDS. Prints the time that this program took on a processor, which is not the
// hub's. The hub's secret is in GPUPROBE_HUB_TOKEN.
#include <dlfcn.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collector/hub/mirror.h"
#include "collector/hub/secret.h"
#include "collector/store/run_files.h"

// The hub has limits for each host, and takes users of its own host for hosts: as root, each thread's sockets
// are those of a user of its own.
extern "C" int socket(int domain, int type, int protocol) {
  using Socket = int (*)(int, int, int);
  constexpr uid_t kFirstUser = 200'000;
  static const auto kNext = reinterpret_cast<Socket>(dlsym(RTLD_NEXT, "socket"));
  static std::atomic<uid_t> threads{0};
  thread_local const uid_t kUser = kFirstUser + threads++;
  const auto own = static_cast<uid_t>(setfsuid(kUser));
  const int fd = kNext(domain, type, protocol);
  setfsuid(own);
  return fd;
}

namespace gpuprobe::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct GrowingFile {
  fs::path from;
  fs::path to;
  uint64_t bytes = 0;
  uint64_t copied = 0;

  void GrowTo(double share) {
    const auto wanted = std::min(bytes, static_cast<uint64_t>(share * static_cast<double>(bytes)));
    if (wanted <= copied) return;
    std::string piece(wanted - copied, '\0');
    std::ifstream in(from, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(copied));
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    std::ofstream(to, std::ios::binary | std::ios::app) << piece;
    copied = wanted;
  }
};

struct Host {
  std::string folder;
  std::vector<GrowingFile> files;
  std::unique_ptr<Mirror> mirror;
};

std::vector<Host> HostsOf(const fs::path& source, const fs::path& copies) {
  std::vector<Host> hosts;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (!entry.is_directory()) continue;
    Host& host = hosts.emplace_back();
    const fs::path copy = copies / entry.path().filename();
    fs::create_directories(copy);
    host.folder = copy;
    for (const fs::directory_entry& file : fs::directory_iterator(entry.path()))
      host.files.push_back(
          {.from = file.path(), .to = copy / file.path().filename(), .bytes = file.file_size()});
  }
  return hosts;
}

int Run(uint16_t port, const std::string& job, const fs::path& source, double seconds) {
  const absl::StatusOr<Secret> secret = Secret::Find();
  if (!secret.ok()) {
    std::fprintf(stderr, "%s\n", secret.status().ToString().c_str());
    return 1;
  }
  std::string copies = (fs::temp_directory_path() / "many-mirrors-XXXXXX").string();
  if (mkdtemp(copies.data()) == nullptr) return 1;
  std::vector<Host> hosts = HostsOf(source, copies);
  const Meeting meeting{.host = "127.0.0.1", .first_port = port, .ports = 1, .job = job};
  for (Host& host : hosts) {
    for (GrowingFile& file : host.files) file.GrowTo(0.01);
    host.mirror = std::make_unique<Mirror>(meeting, *secret, fs::path(host.folder).filename().string());
    host.mirror->Begin(host.folder, host.folder);
  }
  const Clock::time_point begun = Clock::now();
  for (double share = 0; share < 1;) {
    const Clock::time_point round = Clock::now();
    share = std::chrono::duration<double>(round - begun).count() / seconds;
    for (Host& host : hosts) {
      for (GrowingFile& file : host.files) file.GrowTo(share);
      // As a collector does while it records: a hub gives up a host without it.
      std::ofstream(fs::path(host.folder) / store::kLiveFile) << "\n";
    }
    std::this_thread::sleep_until(round + std::chrono::seconds(1));
  }
  size_t lacking = 0;
  for (Host& host : hosts) lacking += host.mirror->End(std::chrono::minutes(5)).all_sent ? 0 : 1;
  std::error_code error;
  fs::remove_all(copies, error);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const double took = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                      static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  std::printf("%zu hosts, %zu without everything sent, %.1f s, %.1f s of CPU here\n", hosts.size(), lacking,
              std::chrono::duration<double>(Clock::now() - begun).count(), took);
  return lacking == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpuprobe::hub

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "many_mirrors HUB-PORT JOB SOURCE SECONDS\n");
    return 2;
  }
  return gpuprobe::hub::Run(static_cast<uint16_t>(std::atoi(argv[1])), argv[2], argv[3], std::atof(argv[4]));
}
