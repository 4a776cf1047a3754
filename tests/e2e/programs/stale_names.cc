// Two ranks whose kernels have wrong names in the records of a CUPTI before 13.4 Update 1, which gives a
// kernel the name that its handle had first. A module with two kernels is used and unloaded: one is called as
// torch.compile names its kernels, the other as NCCL does. NCCL's kernel is made in the place of the first,
// the program's own in the place of the second. Rank 0's host comes late to every all-reduce, so rank 1 waits
// in it.
//
// usage: stale_names STEPS [graph]   launched as ddp_train is; graph: the all-reduce is in a CUDA graph

#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <thread>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = size_t{1} << 18;
constexpr int kLayers = 6;

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed: %d\n", what, static_cast<int>(result));
  std::exit(1);
}

CUmodule Load(std::initializer_list<const char*> kernels) {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  for (const char* kernel : kernels) text += std::string(".visible .entry ") + kernel + "()\n{\n  ret;\n}\n";
  CUmodule module = nullptr;
  Check(cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData");
  return module;
}

CUfunction FunctionOf(CUmodule module, const char* kernel) {
  CUfunction function = nullptr;
  Check(cuModuleGetFunction(&function, module, kernel), "cuModuleGetFunction");
  return function;
}

void Launch(CUfunction function, cudaStream_t stream) {
  Check(cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
}

struct Program {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
  cudaGraphExec_t graph = nullptr;

  void AllReduce() const {
    CHECK_NCCL(ncclAllReduce(buffer, buffer, kCount, ncclFloat, ncclSum, comm, stream));
  }
  void Capture() {
    cudaGraph_t captured = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    AllReduce();
    CHECK_CUDA(cudaStreamEndCapture(stream, &captured));
    CHECK_CUDA(cudaGraphInstantiate(&graph, captured, 0));
    CHECK_CUDA(cudaGraphDestroy(captured));
  }
  void Step(CUfunction layer, CUfunction update, bool late) const {
    CHECK_CUDA(cudaMemcpyAsync(buffer, host, sizeof(host), cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < kLayers; ++i) Launch(layer, stream);
    if (late) {
      CHECK_CUDA(cudaStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (graph != nullptr) {
      CHECK_CUDA(cudaGraphLaunch(graph, stream));
    } else {
      AllReduce();
    }
    Launch(update, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }

  float host[256] = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int steps = std::atoi(argv[1]);
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  Program program;
  CHECK_CUDA(cudaStreamCreateWithFlags(&program.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&program.buffer, kCount * sizeof(float)));
  program.comm = gpuprobe::samples::JoinWorld(identity, "");

  constexpr const char* kGone[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "triton_per_fused_gelu_0"};
  CUmodule gone = Load({kGone[0], kGone[1]});
  for (const char* kernel : kGone) Launch(FunctionOf(gone, kernel), program.stream);
  CHECK_CUDA(cudaStreamSynchronize(program.stream));
  Check(cuModuleUnload(gone), "cuModuleUnload");
  CUmodule own = Load({"layer", "AdamUpdate", "pack_for_nccl"});  // for CUPTI: a module came after one went
  if (argc > 2 && std::strcmp(argv[2], "graph") == 0) {
    program.Capture();
  } else {
    program.AllReduce();
  }
  CUfunction layer = FunctionOf(own, "layer");
  CUfunction update = FunctionOf(own, "AdamUpdate");
  for (int step = 0; step < steps; ++step) {
    program.Step(layer, update, identity.rank == 0);
    Launch(FunctionOf(own, "pack_for_nccl"), program.stream);
  }
  CHECK_CUDA(cudaStreamSynchronize(program.stream));
  CHECK_NCCL(ncclCommDestroy(program.comm));
  return 0;
}
