#include "injector/core/standard_error.h"

#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "injector/base/futex.h"
#include "injector/base/loaded_objects.h"
#include "injector/base/own_descriptor.h"
#include "injector/base/text.h"
#include "injector/core/identity.h"
#include "injector/core/own_thread.h"

namespace gpuprobe::injector {

namespace {

constexpr int kAwaitedMs = 200;
// A shell creates the file of `2>file` just after it has made the process, whose start is known by the
// hundredth of a second.
constexpr uint64_t kCreatedWithProcessNs = 12'000'000;

using Line = TextBuffer<size_t{2} * PATH_MAX>;

struct StandardError {
  bool open;
  bool at_start;
  dev_t device;
  ino_t inode;
  mode_t type;
};
constinit StandardError remembered = {};

alignas(Line) constinit char line_storage[kMaxLines][sizeof(Line)] = {};
constinit std::atomic<int> lines_claimed{0};
constinit std::atomic<bool> line_ready[kMaxLines] = {};
constinit std::atomic<int> lines_written{0};
constinit std::atomic<bool> writing{false};
constinit std::atomic<uint32_t> writer_done{0};  // futex
constinit pid_t writer_process = 0;

bool IsRemembered(int fd, struct stat* status) noexcept {
  return fstat(fd, status) == 0 && status->st_dev == remembered.device &&
         status->st_ino == remembered.inode && (status->st_mode & S_IFMT) == remembered.type;
}

bool IsSameFile(int fd, const struct stat& status) noexcept {
  struct stat other {};
  return fstat(fd, &other) == 0 && other.st_dev == status.st_dev && other.st_ino == status.st_ino;
}

// For a file that we first saw long after the program had started.
bool WasThereBeforeTheProcess() noexcept {
  struct statx times {};
  const uint64_t start_ns = ProcessStartNs();
  if (statx(STDERR_FILENO, "", AT_EMPTY_PATH, STATX_BTIME, &times) != 0 ||
      (times.stx_mask & STATX_BTIME) == 0 || start_ns == 0)
    return false;
  const uint64_t created_ns =
      static_cast<uint64_t>(times.stx_btime.tv_sec) * 1'000'000'000u + times.stx_btime.tv_nsec;
  return created_ns <= start_ns + kCreatedWithProcessNs;
}

bool IsTheProgramsOwn(const struct stat& status) noexcept {
  if (remembered.at_start || IsSameFile(STDOUT_FILENO, status) || IsSameFile(STDIN_FILENO, status))
    return false;
  switch (status.st_mode & S_IFMT) {
    case S_IFIFO:
      return false;
    case S_IFREG:
      return (fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) == 0 && !WasThereBeforeTheProcess();
    case S_IFCHR:
      return isatty(STDERR_FILENO) == 0;
    default:
      return true;
  }
}

// The end of a file, where a line overwrites nothing.
bool IsAtEnd(const struct stat& status) noexcept {
  if ((fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) != 0) return true;
  return lseek(STDERR_FILENO, 0, SEEK_CUR) == status.st_size;
}

// Writes through a non-blocking open file description of our own. False: there is none.
bool WriteApart(std::string_view text) noexcept {
  OwnDescriptor own;
  struct stat status {};
  const int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || !IsRemembered(fd, &status) || !own.Adopt(fd)) return false;
  [[maybe_unused]] const ssize_t written = write(own.get(), text.data(), text.size());
  return true;
}

void WriteIfReady(std::string_view text) noexcept {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// A signal raised by a write stays pending on this thread, where it is blocked: removes it.
void DiscardSignals() noexcept {
  sigset_t raised;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  const timespec at_once{};
  while (sigtimedwait(&raised, nullptr, &at_once) > 0) {
  }
}

void WriteLine(std::string_view text) noexcept {
  struct stat status {};
  if (!remembered.open || !IsRemembered(STDERR_FILENO, &status) || IsTheProgramsOwn(status)) return;
  // No more than goes into a pipe in one piece.
  char line[PIPE_BUF];
  const size_t size = text.size() < sizeof(line) ? text.size() : sizeof(line);
  std::memcpy(line, text.data(), size);
  line[size - 1] = '\n';
  const std::string_view whole(line, size);
  [[maybe_unused]] ssize_t sent = 0;
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      if (IsAtEnd(status)) sent = write(STDERR_FILENO, line, size);
      break;
    case S_IFSOCK:
      sent = send(STDERR_FILENO, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      break;
    default:
      if (!WriteApart(whole)) WriteIfReady(whole);
  }
  DiscardSignals();
}

void* WriterMain(void*) noexcept {
  BecomeOwnThread();
  WriteLines();
  SetAndWake(writer_done);
  return nullptr;
}

void AwaitWriter() noexcept {
  // A child that shares our memory, or has a copy of it, has no such thread.
  if (static_cast<pid_t>(syscall(SYS_getpid)) == writer_process) WaitForSet(writer_done, kAwaitedMs);
}

struct LoadOrder {
  int objects;
  int ours;
  int loader;
};

int NoteOrder(dl_phdr_info* info, size_t /*size*/, void* data) noexcept {
  auto* order = static_cast<LoadOrder*>(data);
  const auto here = reinterpret_cast<uintptr_t>(&remembered);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && here - info->dlpi_addr - segment.p_vaddr < segment.p_memsz)
      order->ours = order->objects;
  }
  const char* slash = info->dlpi_name == nullptr ? nullptr : std::strrchr(info->dlpi_name, '/');
  if (slash != nullptr && std::strncmp(slash, "/ld-", 4) == 0) order->loader = order->objects;
  ++order->objects;
  return 0;
}

}  // namespace

// The loader itself is the last of the objects that a program starts with.
bool LoadedAtStart() noexcept {
  LoadOrder order{0, -1, -1};
  AlwaysVisitLoadedObjects(NoteOrder, &order);
  return order.ours >= 0 && order.ours < order.loader;
}

void RememberStandardError(bool at_start) noexcept {
  struct stat status {};
  remembered.open = fstat(STDERR_FILENO, &status) == 0;
  remembered.at_start = at_start;
  remembered.device = status.st_dev;
  remembered.inode = status.st_ino;
  remembered.type = status.st_mode & S_IFMT;
}

void SayLine(std::string_view text) noexcept {
  const int index = lines_claimed.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMaxLines) return;
  auto* line = new (line_storage[index]) Line;
  line->Add("gpuprobe: ").Add(text).Add("\n");
  line_ready[index].store(true, std::memory_order_release);
}

void WriteLines() noexcept {
  if (writing.exchange(true, std::memory_order_acquire)) return;
  int next = lines_written.load(std::memory_order_relaxed);
  while (next < kMaxLines && line_ready[next].load(std::memory_order_acquire)) {
    WriteLine(reinterpret_cast<const Line*>(line_storage[next])->view());
    ++next;
  }
  lines_written.store(next, std::memory_order_relaxed);
  writing.store(false, std::memory_order_release);
}

void WriteLinesOnOwnThread() noexcept {
  if (lines_claimed.load(std::memory_order_relaxed) == lines_written.load(std::memory_order_relaxed)) return;
  writer_process = static_cast<pid_t>(syscall(SYS_getpid));
  if (StartOwnThread(WriterMain, nullptr)) atexit(AwaitWriter);
}

}  // namespace gpuprobe::injector
