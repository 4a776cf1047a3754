#include "samples/common/ranks.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"

namespace gpuprobe::samples {
namespace {

// What rank 0 writes. Its pid lets the others tell a file of this job from one that a crashed job left
// behind.
struct IdFile {
  pid_t writer = 0;
  ncclUniqueId id = {};
};

bool ReadNumber(const char* name, int* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return false;
  *value = std::atoi(text);
  return true;
}

// mpirun and srun name their job. Another launcher of this host is every rank's parent.
std::string JobName() {
  if (const char* job = std::getenv("PMIX_NAMESPACE"); job != nullptr) return job;
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  if (job != nullptr && step != nullptr) return std::string(job) + "." + step;
  return std::to_string(getppid());
}

std::string DefaultIdFile() {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/ddp-id-" + std::to_string(getuid()) + "-" +
         JobName();
}

void WriteId(const std::string& path, const ncclUniqueId& id) {
  const IdFile content = {getpid(), id};
  const std::string unfinished = path + ".new";
  std::ofstream(unfinished, std::ios::binary).write(reinterpret_cast<const char*>(&content), sizeof(content));
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    std::fprintf(stderr, "cannot write %s: %s\n", path.c_str(), std::strerror(errno));
    std::exit(1);
  }
}

ncclUniqueId AwaitId(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    IdFile content;
    std::ifstream file(path, std::ios::binary);
    if (file.read(reinterpret_cast<char*>(&content), sizeof(content)) && kill(content.writer, 0) == 0) {
      return content.id;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::fprintf(stderr, "rank 0's NCCL id did not appear in %s within 60 s\n", path.c_str());
  std::exit(1);
}

}  // namespace

RankIdentity FindRankIdentity() {
  RankIdentity identity;
  if (ReadNumber("RANK", &identity.rank) && ReadNumber("WORLD_SIZE", &identity.world_size)) {
    identity.local_rank = identity.rank;
    ReadNumber("LOCAL_RANK", &identity.local_rank);
    return identity;
  }
  if (ReadNumber("OMPI_COMM_WORLD_RANK", &identity.rank) &&
      ReadNumber("OMPI_COMM_WORLD_SIZE", &identity.world_size)) {
    ReadNumber("OMPI_COMM_WORLD_LOCAL_RANK", &identity.local_rank);
    return identity;
  }
  if (ReadNumber("SLURM_PROCID", &identity.rank) &&
      ReadNumber("SLURM_STEP_NUM_TASKS", &identity.world_size)) {
    ReadNumber("SLURM_LOCALID", &identity.local_rank);
    return identity;
  }
  return RankIdentity();
}

void ChooseDevice(const RankIdentity& identity) {
  const char* share = std::getenv("DDP_SHARE_DEVICE");
  const bool may_share = share != nullptr && std::strcmp(share, "1") == 0;
  if (may_share) {
    setenv("NCCL_HOSTID", ("rank" + std::to_string(identity.rank)).c_str(), 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MNNVL_ENABLE", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_MAX_NCHANNELS", "2", 0);
  }
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  if (identity.local_rank >= devices && !may_share) {
    std::fprintf(stderr, "rank %d wants device %d of %d; DDP_SHARE_DEVICE=1 lets ranks share devices\n",
                 identity.rank, identity.local_rank, devices);
    std::exit(1);
  }
  CHECK_CUDA(cudaSetDevice(identity.local_rank % devices));
}

ncclComm_t JoinWorld(const RankIdentity& identity, std::string id_file) {
  if (id_file.empty()) {
    const char* from_environment = std::getenv("DDP_ID_FILE");
    id_file = from_environment != nullptr ? from_environment : DefaultIdFile();
  }
  ncclUniqueId id = {};
  if (identity.rank == 0) {
    CHECK_NCCL(ncclGetUniqueId(&id));
    WriteId(id_file, id);
  } else {
    id = AwaitId(id_file);
  }
  ncclComm_t world = nullptr;
  CHECK_NCCL(ncclCommInitRank(&world, identity.world_size, id, identity.rank));
  if (identity.rank == 0) std::remove(id_file.c_str());
  return world;
}

}  // namespace gpuprobe::samples
