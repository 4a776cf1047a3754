// A data-parallel training loop without a range or a name of its own, that is its own fault: it says to
// nobody what goes wrong in it. `faulty_job KEY=VALUE...`
//   steps, layers, bucket_layers, bucket_kib, batch_kib, read_every   the job; the loss is read so often
//   noise    spread of kernels and copies from step to step, in percent
//   fault    none, kernels, copies, launches, input, work, link, leak, or a way to hang: absent,
//   endless_read,
//            endless_loop, other_size, other_order
//   rank     whose it is, except of the link: everybody's
//   from     the first step that has it; every, for: it comes back every so many steps, and stays so long
//   size     factor (kernels, copies, work, link), microseconds before each launch (launches), milliseconds
//            (input), KiB a step (leak)
// A job that hangs ends by SIGALRM after `patience` seconds, as by a watchdog.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

__global__ void LayerForward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void LayerBackward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void WeightGradient(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void FusedAdam(float* data) { data[threadIdx.x] += 1.0F; }

using SetPace = void (*)(double, double, double);

class Job {
 public:
  Job(std::map<std::string, std::string> options, const gpuprobe::samples::RankIdentity& identity,
      ncclComm_t world)
      : options_(std::move(options)),
        rank_(identity.rank),
        world_(world),
        random_(static_cast<unsigned>(7 + identity.rank)),
        set_pace_(reinterpret_cast<SetPace>(dlsym(RTLD_DEFAULT, "gpusim_set_pace"))) {
    if (set_pace_ == nullptr) {
      std::fprintf(stderr, "faulty_job: not on the simulated node\n");
      std::exit(2);
    }
    CHECK_CUDA(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&comm_, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&reduced_, cudaEventDisableTiming));
    CHECK_CUDA(cudaMallocHost(&host_batch_, BatchBytes()));
    CHECK_CUDA(cudaMallocHost(&host_loss_, sizeof(float)));
    CHECK_CUDA(cudaMalloc(&batch_, BatchBytes()));
    CHECK_CUDA(cudaMalloc(&weights_, GradientBytes()));
    CHECK_CUDA(cudaMalloc(&gradients_, GradientBytes()));
    CHECK_CUDA(cudaMalloc(&states_, 2 * GradientBytes()));
    CHECK_NCCL(ncclBroadcast(weights_, weights_, GradientBytes(), ncclChar, 0, world_, compute_));
    CHECK_CUDA(cudaStreamSynchronize(compute_));
  }

  void Step(int step) {
    step_ = step;
    SetPaces();
    Hang();
    Input();
    for (int i = 0; i < Layers(); ++i) Launch(LayerForward, compute_);
    for (int i = 0; i < Layers(); ++i) {
      Launch(LayerBackward, compute_);
      Launch(WeightGradient, compute_);
      if ((i + 1) % BucketLayers() == 0 || i + 1 == Layers()) Reduce(i / BucketLayers());
    }
    CHECK_CUDA(cudaStreamWaitEvent(compute_, reduced_, 0));
    for (int i = 0; i < Layers(); ++i) Launch(FusedAdam, compute_);
    CHECK_CUDA(cudaMemcpyAsync(host_loss_, gradients_, sizeof(float), cudaMemcpyDeviceToHost, compute_));
    if (step % Number("read_every", 1) == 0) CHECK_CUDA(cudaStreamSynchronize(compute_));
    Leak();
  }

  void End() {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_NCCL(ncclCommDestroy(world_));
  }

 private:
  long Number(const std::string& name, long otherwise) const {
    const auto found = options_.find(name);
    return found == options_.end() ? otherwise : std::atol(found->second.c_str());
  }
  double Size() const {
    const auto found = options_.find("size");
    return found == options_.end() ? 1 : std::atof(found->second.c_str());
  }
  int Layers() const { return static_cast<int>(Number("layers", 6)); }
  int BucketLayers() const { return static_cast<int>(Number("bucket_layers", 2)); }
  size_t BucketBytes() const { return static_cast<size_t>(Number("bucket_kib", 1024)) << 10; }
  size_t BatchBytes() const { return static_cast<size_t>(Number("batch_kib", 512)) << 10; }
  size_t GradientBytes() const {
    return BucketBytes() * static_cast<size_t>((Layers() + BucketLayers() - 1) / BucketLayers());
  }

  bool Has(const std::string& fault) const {
    const auto found = options_.find("fault");
    if (found == options_.end() || found->second != fault) return false;
    if (fault != "link" && Number("rank", 0) != rank_) return false;
    const long since = step_ - Number("from", 0);
    if (since < 0) return false;
    const long every = Number("every", 0);
    return every == 0 || since % every < Number("for", 1);
  }

  void SetPaces() {
    std::normal_distribution<double> noise(1, static_cast<double>(Number("noise", 1)) / 100);
    set_pace_(std::abs(noise(random_)) * (Has("kernels") ? Size() : 1),
              std::abs(noise(random_)) * (Has("copies") ? Size() : 1), Has("link") ? Size() : 1);
  }

  static void Sleep(double microseconds) { usleep(static_cast<useconds_t>(microseconds)); }

  void Launch(void (*kernel)(float*), cudaStream_t stream) {
    if (Has("launches")) Sleep(Size());
    kernel<<<64, 128, 0, stream>>>(weights_);
    if (!Has("work") || kernel == FusedAdam) return;
    // More tokens in its batches: more kernels of the same kind.
    for (owed_ += Size() - 1; owed_ >= 1; --owed_) kernel<<<64, 128, 0, stream>>>(weights_);
  }

  void Input() {
    if (Has("input")) Sleep(Size() * 1000);
    CHECK_CUDA(cudaMemcpyAsync(batch_, host_batch_, BatchBytes(), cudaMemcpyHostToDevice, compute_));
  }

  void Reduce(int bucket) {
    CHECK_CUDA(cudaEventRecord(ready_, compute_));
    CHECK_CUDA(cudaStreamWaitEvent(comm_, ready_, 0));
    char* gradients = gradients_ + BucketBytes() * static_cast<size_t>(bucket);
    const size_t count = BucketBytes() / sizeof(float) / (Has("other_size") && bucket == 0 ? 2 : 1);
    if (Has("other_order") && bucket == 0) {
      CHECK_NCCL(ncclReduceScatter(gradients, gradients, count / 8, ncclFloat, ncclSum, world_, comm_));
    } else {
      CHECK_NCCL(ncclAllReduce(gradients, gradients, count, ncclFloat, ncclSum, world_, comm_));
    }
    CHECK_CUDA(cudaEventRecord(reduced_, comm_));
  }

  void Leak() {
    if (!Has("leak")) return;
    void* forgotten = nullptr;
    CHECK_CUDA(cudaMalloc(&forgotten, static_cast<size_t>(Size()) << 10));
  }

  void Hang() const {
    if (Has("absent")) {
      while (true) sleep(1);
    }
    if (Has("endless_loop")) {
      for (volatile unsigned long i = 0;; i = i + 1) {
      }
    }
    int ends[2];
    char byte = 0;
    if (Has("endless_read") && pipe(ends) == 0 && read(ends[0], &byte, 1) != 1) std::abort();
  }

  const std::map<std::string, std::string> options_;
  const int rank_;
  ncclComm_t world_;
  std::mt19937 random_;
  SetPace set_pace_;
  long step_ = 0;
  double owed_ = 0;  // kernels of more work, a fraction
  cudaStream_t compute_ = nullptr;
  cudaStream_t comm_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  cudaEvent_t reduced_ = nullptr;
  char* host_batch_ = nullptr;
  float* host_loss_ = nullptr;
  char* batch_ = nullptr;
  float* weights_ = nullptr;
  char* gradients_ = nullptr;
  char* states_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "faulty_job: %s is not KEY=VALUE\n", argv[i]);
      return 2;
    }
    options[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  const int steps = std::atoi(options["steps"].c_str());
  if (!options["patience"].empty()) alarm(static_cast<unsigned>(std::atoi(options["patience"].c_str())));
  Job job(options, identity, gpuprobe::samples::JoinWorld(identity, ""));
  for (int step = 0; step < steps; ++step) job.Step(step);
  job.End();
  return 0;
}
