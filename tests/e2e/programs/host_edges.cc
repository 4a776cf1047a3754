// A program on the edge: each operation puts the process into a state that a library inside it can easily get
// wrong, and initialises CUDA there. It exits 0 when nothing of the program's was harmed, and says what was.
//
//   readers[:set]   threads loop over getenv and malloc while CUDA starts; with `set`, the program has set a
//                   variable before, as Python does
//   writers         threads set variables of their own while CUDA starts; each must find its last value
//   descriptors     starts CUDA, then closes every descriptor from 3 on and opens files, again and again;
//   each
//                   file must stay open and its own
//   data:FILE       opens FILE on the lowest descriptor (2, when it was started without), starts CUDA, and
//                   says on which descriptor it is
//   pipe:broken     standard error is a pipe that nobody reads any more; SIGPIPE keeps its default action
//   pipe:full       standard error is a pipe that is full
//   cuda            starts CUDA
//   start           starts CUDA and says how long that took
//   child:WAY       starts CUDA, then makes a child by fork, _Fork, clone, vfork or spawn; prints how it
//                   ended; a forked child leaves through exit, and must not wait for anything
//   stack:KIB       starts CUDA on a thread with a stack of so many KiB
//   limit:NAME      no more address space (as:64) or data (data:64) than so many MiB, descriptors
//   (nofile:used),
//                   file size (fsize) or threads (nproc)
//   keys:N          makes thread keys until N are left; `last-keys:N` must still get so many
//   files:N         under a limit of 128 descriptors, opens files until N are left; `last-files:N` must still
//   get
//                   so many
//   lock            locks what is mapped from now on (mlockall); `resident` says how much memory is
//   fill:MIB        allocates and uses so much memory, in blocks of 1 MiB
//   chroot:FOLDER   sees nothing but this folder, where there is no /proc
//   gone            removes its working directory
//   cleared         clears its environment
//   wait:MS
//   exit:N
#include <cuda_runtime.h>
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

extern "C" pid_t _Fork(void);

namespace {

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Fail(const char* what) {
  std::printf("FAILED: %s (%s)\n", what, std::strerror(errno));
  std::fflush(stdout);
  _exit(1);
}

void StartCuda() {
  if (cudaFree(nullptr) != cudaSuccess) Fail("cudaFree");
}

// Blocks of the size of the environment's array: what setenv freed is soon somebody else's.
void ReadAndAllocate(const std::atomic<bool>& stop, size_t bytes) {
  while (!stop.load(std::memory_order_relaxed)) {
    for (int i = 0; i < 16; ++i) (void)getenv("NO_SUCH_VARIABLE_AT_ALL");
    void* block = malloc(bytes);
    if (block != nullptr) memset(block, 0x5a, bytes);
    (void)getenv("NO_SUCH_VARIABLE_AT_ALL");
    free(block);
  }
}

void Readers(const std::string& value) {
  mallopt(M_ARENA_MAX, 1);  // as programs do that count their memory
  if (value == "set") setenv("SET_BY_THE_PROGRAM", "1", 1);
  size_t count = 0;
  while (environ[count] != nullptr) ++count;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { ReadAndAllocate(stop, (count + 2 + i) * 8); });
  usleep(5000);
  StartCuda();
  usleep(100000);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

void Writers() {
  constexpr int kThreads = 3;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<int> added{0};
  std::string last[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "PROGRAM_" + std::to_string(i);
      for (int n = 0; !stop.load(); ++n) {
        last[i] = std::to_string(n);
        setenv(name.c_str(), last[i].c_str(), 1);
        if (n == 0) ++added;
        if (n % 16 == 0) usleep(1);
      }
    });
  }
  // A new variable makes the array longer and frees the old one, which CUDA itself may be reading.
  while (added < kThreads) usleep(100);
  StartCuda();
  usleep(50000);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    const char* found = getenv(("PROGRAM_" + std::to_string(i)).c_str());
    if (!last[i].empty() && (found == nullptr || last[i] != found))
      Fail("a variable of the program's lost its value");
  }
}

struct OpenFile {
  int fd = -1;
  ino_t inode = 0;
};

// As a daemon does at start: nothing from before may stay open.
void Descriptors() {
  StartCuda();
  std::vector<OpenFile> files(24);
  const double until = Seconds() + 0.15;
  while (Seconds() < until) {
    if (syscall(SYS_close_range, 3u, ~0u, 0u) != 0) Fail("close_range");
    for (OpenFile& file : files) {
      char path[] = "edge-XXXXXX";
      file.fd = mkstemp(path);
      if (file.fd < 0) Fail("mkstemp");
      unlink(path);
      struct stat status {};
      fstat(file.fd, &status);
      file.inode = status.st_ino;
    }
    for (int look = 0; look < 10; ++look) {
      for (const OpenFile& file : files) {
        struct stat status {};
        if (fstat(file.fd, &status) != 0 || status.st_ino != file.inode) Fail("a file of the program's");
      }
      usleep(100);
    }
  }
}

void Data(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0) Fail("open");
  StartCuda();
  if (write(fd, "data\n", 5) != 5) Fail("write");
  std::printf("descriptor %d\n", fd);
}

void Pipe(const std::string& how) {
  int ends[2];
  if (pipe(ends) != 0) Fail("pipe");
  if (how == "full") {
    const std::vector<char> block(4096, 'x');
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], block.data(), block.size()) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[0], 200);  // stays open, and nobody reads it
  }
  dup2(ends[1], 2);
  close(ends[0]);
  close(ends[1]);
}

void Start() {
  const double began = Seconds();
  StartCuda();
  std::printf("start %.3f\n", Seconds() - began);
}

int ExitInChild(void*) { exit(5); }

int EndInChild(void*) { _exit(5); }

pid_t MakeChild(const std::string& way) {
  alignas(16) static char stack[65536];
  if (way == "fork") return fork();
  if (way == "_Fork") return _Fork();
  if (way == "clone") return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (way == "vm") return clone(ExitInChild, stack + sizeof(stack), CLONE_VM | SIGCHLD, nullptr);
  if (way == "vfork")
    return clone(EndInChild, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
  if (way == "spawn") {
    pid_t child = -1;
    char name[] = "/bin/true";
    char* arguments[] = {name, nullptr};
    if (posix_spawn(&child, name, nullptr, nullptr, arguments, environ) != 0) Fail("posix_spawn");
    return child;
  }
  Fail("no such child");
  return -1;
}

void Child(const std::string& way) {
  StartCuda();
  const double began = Seconds();
  const pid_t child = MakeChild(way);
  if (child == 0) exit(5);
  if (child < 0) Fail("child");
  int status = 0;
  if (waitpid(child, &status, 0) != child) Fail("waitpid");
  const double took = Seconds() - began;
  std::printf("child %s %d\n", way.c_str(), WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  if (took > 0.5) {
    std::printf("FAILED: the child took %.3f s to end\n", took);
    _exit(1);
  }
}

void* StartOnThread(void*) {
  StartCuda();
  return nullptr;
}

void Stack(const std::string& kib) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, static_cast<size_t>(std::atoi(kib.c_str())) << 10) != 0)
    Fail("stack size");
  pthread_t thread{};
  if (pthread_create(&thread, &attributes, StartOnThread, nullptr) != 0) Fail("thread");
  pthread_join(thread, nullptr);
}

void Limit(const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  const auto value =
      static_cast<rlim_t>(what.find(':') < what.size() ? std::atoi(what.c_str() + what.find(':') + 1) : 0);
  rlimit limit{value, value};
  if (name == "as") {
    // Above what is mapped by now.
    FILE* file = std::fopen("/proc/self/statm", "r");
    size_t pages = 0;
    if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) Fail("statm");
    std::fclose(file);
    limit.rlim_cur = limit.rlim_max = pages * 4096 + (value << 20);
    if (setrlimit(RLIMIT_AS, &limit) != 0) Fail("RLIMIT_AS");
  } else if (name == "data") {
    FILE* file = std::fopen("/proc/self/statm", "r");
    size_t pages = 0;
    if (file == nullptr || std::fscanf(file, "%*u %*u %*u %*u %*u %zu", &pages) != 1) Fail("statm");
    std::fclose(file);
    limit.rlim_cur = limit.rlim_max = pages * 4096 + (value << 20);
    if (setrlimit(RLIMIT_DATA, &limit) != 0) Fail("RLIMIT_DATA");
  } else if (name == "nofile") {
    limit.rlim_cur = limit.rlim_max = value == 0 ? 64 : value;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) Fail("RLIMIT_NOFILE");
    while (value == 0 && open("/dev/null", O_RDONLY) >= 0) {
    }
  } else if (name == "fsize") {
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) Fail("RLIMIT_FSIZE");
  } else if (name == "nproc") {
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) Fail("setuid");
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) Fail("RLIMIT_NPROC");
  } else {
    Fail("no such limit");
  }
}

void TakeKeys(int left) {
  std::vector<pthread_key_t> keys;
  pthread_key_t key{};
  while (pthread_key_create(&key, nullptr) == 0) keys.push_back(key);
  for (int i = 0; i < left; ++i) pthread_key_delete(keys[keys.size() - 1 - static_cast<size_t>(i)]);
}

void TakeLastKeys(int count) {
  pthread_key_t key{};
  for (int i = 0; i < count; ++i) {
    if (pthread_key_create(&key, nullptr) != 0) Fail("a thread key");
  }
}

void TakeFiles(int left) {
  const rlimit limit{128, 128};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) Fail("RLIMIT_NOFILE");
  std::vector<int> files;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) files.push_back(fd);
  // In the middle: a program's descriptors have no order.
  for (int i = 0; i < left; ++i) close(files[files.size() / 2 + static_cast<size_t>(i)]);
}

void TakeLastFiles(int count) {
  for (int i = 0; i < count; ++i) {
    if (open("/dev/null", O_RDONLY) < 0) Fail("a descriptor");
  }
}

void SayResident() {
  FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  long kib = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "VmRSS:", 6) == 0) kib = std::atol(line + 6);
  }
  if (file != nullptr) std::fclose(file);
  std::printf("%ld KiB are resident\n", kib);
}

void Fill(int mib) {
  for (int i = 0; i < mib; ++i) {
    auto* block = static_cast<char*>(malloc(size_t{1} << 20));
    if (block == nullptr) Fail("malloc");
    memset(block, 1, 64);
  }
}

void Perform(const std::string& operation, const std::string& value) {
  if (operation == "readers") return Readers(value);
  if (operation == "writers") return Writers();
  if (operation == "descriptors") return Descriptors();
  if (operation == "data") return Data(value);
  if (operation == "pipe") return Pipe(value);
  if (operation == "start") return Start();
  if (operation == "cuda") return StartCuda();
  if (operation == "child") return Child(value);
  if (operation == "stack") return Stack(value);
  if (operation == "limit") return Limit(value);
  if (operation == "keys") return TakeKeys(std::atoi(value.c_str()));
  if (operation == "last-keys") return TakeLastKeys(std::atoi(value.c_str()));
  if (operation == "files") return TakeFiles(std::atoi(value.c_str()));
  if (operation == "last-files") return TakeLastFiles(std::atoi(value.c_str()));
  if (operation == "lock") {
    if (mlockall(MCL_FUTURE) != 0) Fail("mlockall");
    return;
  }
  if (operation == "resident") return SayResident();
  if (operation == "fill") return Fill(std::atoi(value.c_str()));
  if (operation == "chroot") {
    if (chroot(value.c_str()) != 0 || chdir("/") != 0) Fail("chroot");
    return;
  }
  if (operation == "gone") {
    char folder[4096];
    if (getcwd(folder, sizeof(folder)) == nullptr || rmdir(folder) != 0) Fail("rmdir");
    return;
  }
  if (operation == "cleared") {
    clearenv();
    return;
  }
  if (operation == "wait") {
    usleep(static_cast<useconds_t>(std::atoi(value.c_str())) * 1000);
    return;
  }
  if (operation == "exit") exit(std::atoi(value.c_str()));
  Fail("no such operation");
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t colon = std::min(argument.find(':'), argument.size());
    Perform(argument.substr(0, colon), colon < argument.size() ? argument.substr(colon + 1) : "");
  }
  return 0;
}
