#include "samples/ddp_train/worker_thread.h"

#include <pthread.h>

#include <utility>

#include "samples/common/check.h"

namespace gpuprobe::samples {

WorkerThread::WorkerThread(const std::string& name, int device) {
  thread_ = std::thread([this, name, device] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    CHECK_CUDA(cudaSetDevice(device));
    Loop();
  });
}

WorkerThread::~WorkerThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WorkerThread::RunAndWait(std::function<void()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = std::move(work);
  changed_.notify_all();
  changed_.wait(lock, [this] { return !work_; });
}

void WorkerThread::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || work_; });
    if (stopping_) return;
    lock.unlock();
    work_();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gpuprobe::samples
