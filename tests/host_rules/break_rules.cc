// A probe that breaks the rule that BREAK_RULE names, on the application's thread, when CUDA starts: the test
// of the rules must find it. Everything else of the library is as it is.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "injector/probe.h"

namespace {

void* Nothing(void* argument) { return argument; }

void BreakRule(const char* rule) {
  if (std::strcmp(rule, "environment") == 0) setenv("BROKEN", "1", 1);
  if (std::strcmp(rule, "descriptors") == 0) close(499);
  if (std::strcmp(rule, "standard-error") == 0 && write(STDERR_FILENO, "x\n", 2) < 0) return;
  if (std::strcmp(rule, "signals") == 0) std::signal(SIGUSR1, SIG_IGN);
  if (std::strcmp(rule, "allocation") == 0) {
    void* volatile block = std::malloc(100);
    std::free(block);
  }
  if (std::strcmp(rule, "locks") == 0) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
  }
  if (std::strcmp(rule, "waiting") == 0) usleep(1);
  if (std::strcmp(rule, "process") == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
  }
  if (std::strcmp(rule, "process-state") == 0) umask(umask(022));
  if (std::strcmp(rule, "threads") == 0) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, Nothing, nullptr) == 0) pthread_detach(thread);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() noexcept {
  gpuprobe::injector::StartProbe();
  const char* rule = getenv("BREAK_RULE");
  if (rule != nullptr) BreakRule(rule);
  return 1;
}

namespace {

__attribute__((constructor)) void OnLoad() noexcept { gpuprobe::injector::AnnounceLibrary(); }

}  // namespace
