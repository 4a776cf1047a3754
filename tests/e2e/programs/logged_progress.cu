// Ranks that log each thing before and after they do it, so that a test knows what they were in when they
// were killed: `logged_progress LOG [fork|close|limit]` appends to LOG.<rank>, one write() a line:
//
//   pid 4711
//   > push step 3     about to open the range "step 3"
//   < push step 3     it is open
//   > call 17         about to issue collective 17 of the world
//   < call 17         the call has returned
//   > pop
//   < pop
//
// fork: each step has a child that opens a range of its own and ends; close: every descriptor that the
// program did not open is closed after some steps; limit: address space is limited (RLIMIT_AS).
#include <cuda_runtime.h>
#include <fcntl.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr int kFloats = 4096;
int log_file = -1;

void Log(const std::string& line) {
  const std::string text = line + "\n";
  if (write(log_file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

void Push(const std::string& name) {
  Log("> push " + name);
  nvtxRangePushA(name.c_str());
  Log("< push " + name);
}

void Pop() {
  Log("> pop");
  nvtxRangePop();
  Log("< pop");
}

void RunChild() {
  const pid_t child = fork();
  if (child == 0) {
    nvtxRangePushA("of a child");
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: logged_progress LOG [fork|close|limit]\n");
    return 2;
  }
  const std::string way = argc > 2 ? argv[2] : "";
  if (way == "limit") {
    const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
  }
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  ncclComm_t comm = gpuprobe::samples::JoinWorld(identity, "");
  log_file = open((std::string(argv[1]) + "." + std::to_string(identity.rank)).c_str(),
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  Log("pid " + std::to_string(getpid()));
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, kFloats * sizeof(float)));
  long call = 0;
  for (long step = 0; step < 1'000'000; ++step) {
    Push("step " + std::to_string(step));
    for (const char* part : {"forward", "backward"}) {
      Push(part);
      if (way == "fork") RunChild();
      for (int i = 0; i < 2; ++i, ++call) {
        Log("> call " + std::to_string(call));
        CHECK_NCCL(ncclAllReduce(data, data, kFloats, ncclFloat, ncclSum, comm, stream));
        Log("< call " + std::to_string(call));
      }
      Pop();
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    Pop();
    if (way == "close" && step == 20) {
      for (int fd = 3; fd < 1024; ++fd) {
        if (fd != log_file) close(fd);
      }
    }
  }
  CHECK_NCCL(ncclCommDestroy(comm));
  return 0;
}
