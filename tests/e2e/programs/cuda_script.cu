// A CUDA program that does what its arguments say, one after the other, so that a test can lead it to any
// point and any end.
//
//   kernels:N       launches N kernels and waits for them      copies:N      N copies to the device, each
//   waited for launch:N        launches N kernels, does not wait          print:TEXT    a line on stdout,
//   flushed touch:FILE      creates a file                             await:FILE    waits until a file
//   exists fork:WAY        forks a child that ends by WAY (exit, _exit, abort, return); waits for it and
//   prints its status fork-exec:OPS   forks a child that executes this program with the operations in OPS,
//   separated by commas; waits and prints its status fork-cuda       forks a child that calls CUDA, which
//   must refuse there, and leaves by _exit; waits and prints its status thread:N        launches N kernels on
//   another thread       return:N      returns N from main exit:N  _exit:N  abort  raise:SIGNAL  sleep  (for
//   ever) on-term         installs a SIGTERM handler that prints a line and calls _exit(3)

#include <cuda_runtime.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"

namespace {

__global__ void ScriptKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

int* counter = nullptr;

void Launch(int count) {
  if (counter == nullptr) CHECK_CUDA(cudaMalloc(&counter, 1024));
  for (int i = 0; i < count; ++i) ScriptKernel<<<1, 32>>>(counter);
  CHECK_CUDA(cudaGetLastError());
}

void Copy(int count) {
  if (counter == nullptr) CHECK_CUDA(cudaMalloc(&counter, 1024));
  const std::vector<char> host(1024);
  for (int i = 0; i < count; ++i)
    CHECK_CUDA(cudaMemcpy(counter, host.data(), host.size(), cudaMemcpyHostToDevice));
}

void AwaitFile(const char* path) {
  while (access(path, F_OK) != 0) usleep(1000);
}

void PrintStatus(int status) {
  if (WIFSIGNALED(status)) {
    std::printf("child ended by signal %d\n", WTERMSIG(status));
  } else {
    std::printf("child ended with %d\n", WEXITSTATUS(status));
  }
  std::fflush(stdout);
}

void WaitFor(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) std::perror("waitpid");
  PrintStatus(status);
}

void OnTerm(int) {
  const char text[] = "caught SIGTERM\n";
  if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0) _exit(4);
  _exit(3);
}

void Exec(const char* program, const std::string& operations) {
  std::vector<std::string> words = {program};
  for (size_t start = 0; start <= operations.size();) {
    const size_t comma = std::min(operations.find(',', start), operations.size());
    words.push_back(operations.substr(start, comma - start));
    start = comma + 1;
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program, arguments.data());
  _exit(127);
}

// The child's only ways on are those that a forked child of a CUDA program has: ending, or executing
// something else.
void EndChild(const std::string& way) {
  if (way == "exit") std::exit(5);
  if (way == "_exit") _exit(6);
  if (way == "abort") std::abort();
  _exit(99);
}

int SignalNumber(const std::string& name) {
  if (name == "TERM") return SIGTERM;
  if (name == "KILL") return SIGKILL;
  if (name == "SEGV") return SIGSEGV;
  if (name == "INT") return SIGINT;
  std::fprintf(stderr, "unknown signal %s\n", name.c_str());
  std::exit(2);
}

// What happened: go on, or leave main with a status.
struct Next {
  bool leave = false;
  int status = 0;
};

Next Fork(const char* program, const std::string& operation, const std::string& value) {
  const pid_t child = fork();
  if (child > 0) {
    WaitFor(child);
    return {};
  }
  if (child < 0) {
    std::perror("fork");
    std::exit(2);
  }
  if (operation == "fork-exec") Exec(program, value);
  if (operation == "fork-cuda") {
    int devices = 0;
    (void)cudaGetDeviceCount(&devices);
    _exit(7);
  }
  if (value == "return") return {true, 8};
  EndChild(value);
  return {};
}

Next Perform(const char* program, const std::string& operation, const std::string& value) {
  const int number = std::atoi(value.c_str());
  if (operation == "launch") Launch(number);
  if (operation == "kernels") {
    Launch(number);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  if (operation == "copies") Copy(number);
  if (operation == "thread") {
    std::thread([number] {
      Launch(number);
      CHECK_CUDA(cudaDeviceSynchronize());
    }).join();
  }
  if (operation == "print") {
    std::printf("%s\n", value.c_str());
    std::fflush(stdout);
  }
  if (operation == "touch") close(open(value.c_str(), O_CREAT | O_WRONLY, 0600));
  if (operation == "await") AwaitFile(value.c_str());
  if (operation.rfind("fork", 0) == 0) return Fork(program, operation, value);
  if (operation == "on-term") signal(SIGTERM, OnTerm);
  if (operation == "return") return {true, number};
  if (operation == "exit") std::exit(number);
  if (operation == "_exit") _exit(number);
  if (operation == "abort") std::abort();
  if (operation == "raise") raise(SignalNumber(value));
  if (operation == "sleep") {
    while (true) pause();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t colon = std::min(argument.find(':'), argument.size());
    const std::string value = colon < argument.size() ? argument.substr(colon + 1) : "";
    const Next next = Perform(argv[0], argument.substr(0, colon), value);
    if (next.leave) return next.status;
  }
  return 0;
}
