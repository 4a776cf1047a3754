// A named thread that runs one function at a time while the caller waits, like PyTorch's autograd engine for
// the training loop.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace gpuprobe::samples {

class WorkerThread {
 public:
  // `device` is made current on the thread. The name is cut to 15 characters by the kernel.
  WorkerThread(const std::string& name, int device);
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Runs `work` on the thread and returns when it has ended.
  void RunAndWait(std::function<void()> work);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: nothing to do
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpuprobe::samples
