// Jobs whose ranks give their GPUs no work for long, and why: some hang, and some wait rightly. Ranks of one
// job are launched as ddp_train is. `standstills SITUATION [SECONDS]`
//   lock          all ranks have trained, and wait for a file that never comes
//   queue         all ranks have trained, and wait on a condition variable that nobody signals
//   setup         the same as `lock` before the first step, once the weights were sent around
//   server        ranks answer requests, then none comes for SECONDS: they sleep on a semaphore
//   server-spins  the same; they look for the next request all the time
//   busy          all ranks have trained, and compute on the host for SECONDS
//   checkpoint    rank 0 writes a file for SECONDS, while the others sleep, and training goes on
//   child         all ranks wait for a child process that takes SECONDS, and training goes on
//   loader        every batch comes 8 ms late; then rank 0 waits for one that never comes
//   background    all but the last rank create a communicator without blocking, and poll for it
//   late-joiner   the last rank joins such a communicator SECONDS later; the others train meanwhile
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "tests/e2e/programs/strangers/mini.h"

namespace strangers {
namespace {

constexpr int kSteps = 40;
constexpr int kCount = 1 << 18;

void Pass(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

[[noreturn]] void NeverCome() {
  for (;;) Pass(1000);
}

void WaitForFile() {
  while (access("file-that-never-comes", F_OK) != 0) Pass(100);
}

void WaitForQueue() {
  std::mutex mutex;
  std::condition_variable batch;
  bool ready = false;
  std::unique_lock<std::mutex> lock(mutex);
  batch.wait(lock, [&] { return ready; });
}

class Job {
 public:
  explicit Job(double seconds) : seconds_(seconds) { CHECK_CUDA(cudaMallocHost(&batch_, kCount)); }

  void Lock() {
    Train();
    WaitForFile();
  }
  void Queue() {
    Train();
    WaitForQueue();
  }
  void Setup() {
    for (int layer = 0; layer < 8; ++layer)
      CHECK_NCCL(ncclBroadcast(weights_, weights_, kCount, ncclFloat, 0, rank_.world, rank_.compute));
    Wait();
    WaitForFile();
  }
  void Server() { Serve(false); }
  void ServerSpins() { Serve(true); }
  void Busy() {
    Train();
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_);
    while (std::chrono::steady_clock::now() < end) {
    }
    Train();
  }
  void Checkpoint() {
    Train();
    const std::string piece(1 << 20, 'x');
    FILE* file = rank_.id.rank == 0 ? std::fopen("checkpoint", "wb") : nullptr;
    for (double waited = 0; waited < seconds_; waited += 0.1) {
      if (file != nullptr) {
        std::rewind(file);
        std::fwrite(piece.data(), 1, piece.size(), file);
      }
      Pass(100);
    }
    if (file != nullptr) std::fclose(file);
    Train();
  }
  void Child() {
    Train();
    const std::string seconds = std::to_string(seconds_);
    const pid_t child = fork();
    if (child == 0) {
      execlp("sleep", "sleep", seconds.c_str(), nullptr);
      _exit(127);
    }
    waitpid(child, nullptr, 0);
    Train();
  }
  void Loader() {
    for (int step = 0; step <= kSteps; ++step) {
      if (step == kSteps && rank_.id.rank == 0) WaitForQueue();
      Pass(8);
      Step();
    }
  }
  void Background() {
    Train();
    if (IsLast()) NeverCome();
    ncclComm_t second = Begin();
    while (!IsMade(second)) Pass(1);
  }
  void LateJoiner() {
    Train();
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_);
    // Who joins late trains, too; that the time is over, all ranks hear from rank 0.
    ncclComm_t second = IsLast() ? nullptr : Begin();
    float over = 0;
    while (over == 0) {
      Step();
      over = std::chrono::steady_clock::now() >= end ? 1 : 0;
      CHECK_CUDA(cudaMemcpyAsync(weights_, &over, sizeof over, cudaMemcpyHostToDevice, rank_.compute));
      CHECK_NCCL(ncclBroadcast(weights_, weights_, 1, ncclFloat, 0, rank_.world, rank_.compute));
      CHECK_CUDA(cudaMemcpyAsync(&over, weights_, sizeof over, cudaMemcpyDeviceToHost, rank_.compute));
      Wait();
    }
    if (IsLast()) second = Begin();
    while (!IsMade(second)) Pass(1);
    CHECK_NCCL(ncclCommDestroy(second));
  }

  void Finish() const { rank_.Finish(); }

 private:
  bool IsLast() const { return rank_.id.rank == rank_.id.world_size - 1; }
  void Wait() const { CHECK_CUDA(cudaStreamSynchronize(rank_.compute)); }

  void Step() {
    CHECK_CUDA(cudaMemcpyAsync(input_, batch_, kCount, cudaMemcpyHostToDevice, rank_.compute));
    for (int layer = 0; layer < 4; ++layer) Run(MatmulForward, input_, kCount, rank_.compute);
    for (int layer = 0; layer < 4; ++layer) Run(MatmulBackward, weights_, kCount, rank_.compute);
    rank_.Reduce(weights_, kCount, rank_.compute);
    Run(AdamUpdate, weights_, kCount, rank_.compute);
    Wait();
  }
  void Train() {
    for (int step = 0; step < kSteps; ++step) Step();
  }

  // A thread of rank 0 passes requests to all ranks: a dozen, and one after the quiet time.
  void Serve(bool spins) {
    const char* job = std::getenv("DDP_ID_FILE");
    const std::string name =
        "/standstills-" + std::to_string(std::hash<std::string>{}(job == nullptr ? "" : job));
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0) std::exit(2);
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    auto* requests = static_cast<sem_t*>(memory);
    const int ranks = rank_.id.world_size;
    if (rank_.id.rank == 0) {
      for (int rank = 0; rank < ranks; ++rank) sem_init(requests + rank, 1, 0);
    }
    rank_.Reduce(weights_, 1, rank_.compute);
    Wait();
    if (rank_.id.rank == 0) shm_unlink(name.c_str());  // all have it
    constexpr int kRequests = 12;
    std::thread clients;
    if (rank_.id.rank == 0) {
      clients = std::thread([&] {
        for (int request = 0; request <= kRequests; ++request) {
          Pass(request == kRequests ? 1000 * seconds_ : 100);
          for (int rank = 0; rank < ranks; ++rank) sem_post(requests + rank);
        }
      });
    }
    for (int request = 0; request <= kRequests; ++request) {
      sem_t* next = requests + rank_.id.rank;
      while ((spins ? sem_trywait(next) : sem_wait(next)) != 0) sched_yield();
      for (int token = 0; token < 10; ++token) Answer();
    }
    if (clients.joinable()) clients.join();
  }
  void Answer() {
    for (int layer = 0; layer < 4; ++layer) {
      Run(MatmulForward, input_, kCount, rank_.compute);
      rank_.Reduce(input_, 1 << 14, rank_.compute);
    }
    float token = 0;
    CHECK_CUDA(cudaMemcpyAsync(&token, input_, sizeof token, cudaMemcpyDeviceToHost, rank_.compute));
    Wait();
  }

  // Rank 0 leaves the id of a second communicator in a file.
  ncclComm_t Begin() const {
    const std::string name = std::string(std::getenv("DDP_ID_FILE")) + ".second";
    ncclUniqueId id;
    if (rank_.id.rank == 0) {
      CHECK_NCCL(ncclGetUniqueId(&id));
      FILE* file = std::fopen((name + ".part").c_str(), "wb");
      std::fwrite(&id, sizeof id, 1, file);
      std::fclose(file);
      std::rename((name + ".part").c_str(), name.c_str());
    }
    for (FILE* file = nullptr; file == nullptr; Pass(1)) {
      file = std::fopen(name.c_str(), "rb");
      if (file == nullptr) continue;
      if (std::fread(&id, sizeof id, 1, file) != 1) std::exit(2);
      std::fclose(file);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t result =
        ncclCommInitRankConfig(&comm, rank_.id.world_size, id, rank_.id.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) std::exit(3);
    return comm;
  }
  static bool IsMade(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    return state != ncclInProgress;
  }

  const double seconds_;
  Rank rank_;
  float* batch_ = nullptr;
  float* input_ = Floats(kCount);
  float* weights_ = Floats(kCount);
};

}  // namespace
}  // namespace strangers

int main(int argc, char** argv) {
  using strangers::Job;
  const std::string what = argc > 1 ? argv[1] : "";
  constexpr struct {
    const char* name;
    void (Job::*run)();
  } kSituations[] = {{"lock", &Job::Lock},
                     {"queue", &Job::Queue},
                     {"setup", &Job::Setup},
                     {"server", &Job::Server},
                     {"server-spins", &Job::ServerSpins},
                     {"busy", &Job::Busy},
                     {"checkpoint", &Job::Checkpoint},
                     {"child", &Job::Child},
                     {"loader", &Job::Loader},
                     {"background", &Job::Background},
                     {"late-joiner", &Job::LateJoiner}};
  Job job(argc > 2 ? std::atof(argv[2]) : 0);
  for (const auto& situation : kSituations) {
    if (what == situation.name) (job.*situation.run)();
  }
  job.Finish();
  return 0;
}
