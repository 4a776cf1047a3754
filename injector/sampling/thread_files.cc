#include "injector/sampling/thread_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>

#include "injector/base/text.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kBetweenOpeningsNs = 80'000'000;
// A file that was not read for so long may be closed for one that is less needed.
constexpr uint64_t kUnusedNs = 1'000'000'000;

// System calls whose first argument is a descriptor that may make them wait.
constexpr int32_t kOfDescriptors[] = {
    SYS_read,        SYS_write,     SYS_pread64,         SYS_pwrite64,        SYS_readv,    SYS_writev,
    SYS_preadv,      SYS_pwritev,   SYS_preadv2,         SYS_pwritev2,        SYS_fsync,    SYS_fdatasync,
    SYS_syncfs,      SYS_ftruncate, SYS_fallocate,       SYS_sync_file_range, SYS_sendfile, SYS_splice,
    SYS_getdents64,  SYS_flock,     SYS_fcntl,           SYS_ioctl,           SYS_recvfrom, SYS_recvmsg,
    SYS_sendto,      SYS_sendmsg,   SYS_accept,          SYS_accept4,         SYS_connect,  SYS_epoll_wait,
    SYS_epoll_pwait, SYS_close,     SYS_copy_file_range,
};

int64_t TakeNumber(std::string_view* text, int base) noexcept {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  if (base == 16 && StartsWith(*text, "0x")) text->remove_prefix(2);
  uint64_t value = 0;
  const bool negative = !text->empty() && text->front() == '-';
  if (negative) text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value, base);
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

// -1: the descriptor is not ours any more, or the thread has ended.
ssize_t ReadAgain(const OwnDescriptor& file, char* room, size_t bytes) noexcept {
  if (file.StillOurs()) return pread(file.get(), room, bytes, 0);
  errno = EBADF;
  return -1;
}

// /proc may be that of another namespace, whose numbers are others.
bool ProcIsOurs() noexcept {
  char text[16];
  const ssize_t size = readlink("/proc/self", text, sizeof(text));
  std::string_view own(text, size > 0 ? static_cast<size_t>(size) : 0);
  return TakeNumber(&own, 10) == getpid();
}

}  // namespace

bool ParseSystemCall(std::string_view text, KernelView* view) noexcept {
  if (StartsWith(text, "running")) return true;
  if (text.empty()) return false;
  const int64_t number = TakeNumber(&text, 10);
  if (number < 0 || number > INT32_MAX) {  // it waits outside of any, for a page
    view->ended = TakeNumber(&text, 16) == 0;
    if (!view->ended) view->state = wire::ThreadState::kThreadStateUninterruptible;
    return false;
  }
  view->system_call = static_cast<int32_t>(number);
  const int64_t first = TakeNumber(&text, 16);
  if (number == SYS_futex) view->sleeps_on = static_cast<uint64_t>(first);
  if (std::find(std::begin(kOfDescriptors), std::end(kOfDescriptors), view->system_call) ==
      std::end(kOfDescriptors))
    return false;
  if (first >= 0 && first <= INT32_MAX) view->descriptor = static_cast<int32_t>(first);
  return false;
}

// "4711 (a name) S 1 ...": the name may contain anything.
wire::ThreadState ParseState(std::string_view text, bool* ended) noexcept {
  const size_t name_end = text.rfind(')');
  const std::string_view rest =
      name_end == std::string_view::npos ? std::string_view() : Slice(text, name_end + 2, 1);
  *ended = rest == "Z" || rest == "X";
  if (rest == "R") return wire::ThreadState::kThreadStateRunning;
  if (rest == "S" || rest == "I") return wire::ThreadState::kThreadStateSleeping;
  if (rest == "D") return wire::ThreadState::kThreadStateUninterruptible;
  if (rest == "T" || rest == "t") return wire::ThreadState::kThreadStateStopped;
  return wire::ThreadState::kThreadStateUnknown;
}

// "TIME_ON_A_PROCESSOR TIME_WITHOUT TIMES".
uint64_t ParseRunDelay(std::string_view text) noexcept {
  TakeNumber(&text, 10);
  return static_cast<uint64_t>(TakeNumber(&text, 10));
}

// Of what the kernel knows already: a file server that does not answer is not asked.
bool ThreadFiles::IsOfDisk(int32_t descriptor) noexcept {
  struct statx status {};
  return descriptor >= 0 &&
         statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
         (S_ISREG(status.stx_mode) || S_ISBLK(status.stx_mode));
}

int ThreadFiles::Find(Kind kind, uint32_t tid, uint32_t id) const noexcept {
  for (int slot = 0; slot < kMostFiles; ++slot) {
    const File& file = files_[slot];
    if (file.kind == kind && file.tid == tid && file.id == id && file.file.StillOurs()) return slot;
  }
  return -1;
}

int ThreadFiles::Oldest() const noexcept {
  int oldest = 0;
  for (int slot = 0; slot < kMostFiles; ++slot) {
    if (!files_[slot].file.StillOurs()) return slot;
    const bool is_delay = files_[slot].kind == Kind::kDelay;
    const bool oldest_is_delay = files_[oldest].kind == Kind::kDelay;
    if (is_delay != oldest_is_delay ? is_delay : files_[slot].used_ns < files_[oldest].used_ns) oldest = slot;
  }
  return oldest;
}

bool ThreadFiles::MayOpen(uint64_t now_ns) noexcept {
  if (opened_ns_ != 0 && now_ns - opened_ns_ < kBetweenOpeningsNs) return false;
  opened_ns_ = now_ns;
  return ProcIsOurs();
}

bool ThreadFiles::Open(int slot, Kind kind, uint32_t tid, uint32_t id, uint64_t now_ns) noexcept {
  constexpr std::string_view kNames[] = {"", "syscall", "stat", "schedstat"};
  TextBuffer<64> path;
  path.Add("/proc/self/task/").AddNumber(tid).Add("/").Add(kNames[static_cast<int>(kind)]);
  File& file = files_[slot];
  // A delay goes on from where it was, if it is still the same thread's.
  if (file.kind != kind || file.tid != tid || file.id != id) file.has_delay = false;
  file.kind = kind;
  file.tid = tid;
  file.id = id;
  file.used_ns = now_ns;
  return file.file.Open(path.c_str(), O_RDONLY);
}

// In a slot that nobody needs: a delay is known from the second reading on.
void ThreadFiles::ReadDelay(uint32_t tid, uint32_t id, uint64_t now_ns, KernelView* view) noexcept {
  int slot = Find(Kind::kDelay, tid, id);
  if (slot < 0) {
    slot = Oldest();
    const bool unused = !files_[slot].file.StillOurs() || now_ns - files_[slot].used_ns > kUnusedNs;
    if (!unused || !MayOpen(now_ns) || !Open(slot, Kind::kDelay, tid, id, now_ns)) return;
  }
  char room[512];
  const ssize_t size = ReadAgain(files_[slot].file, room, sizeof(room));
  if (size <= 0) return;
  File& file = files_[slot];
  const uint64_t delay_ns = ParseRunDelay({room, static_cast<size_t>(size)});
  if (file.has_delay && delay_ns > file.delay_ns) view->run_delay_ns = delay_ns - file.delay_ns;
  file.delay_ns = delay_ns;
  file.has_delay = true;
  file.used_ns = now_ns;
}

KernelView ThreadFiles::Look(uint32_t tid, uint32_t id, uint64_t now_ns) noexcept {
  KernelView view;
  Kind kind = Kind::kSystemCall;
  int slot = Find(kind, tid, id);
  if (slot < 0) {
    slot = Find(Kind::kState, tid, id);
    if (slot >= 0) kind = Kind::kState;
  }
  if (slot < 0) {
    if (!MayOpen(now_ns)) return view;
    slot = Oldest();
    if (!Open(slot, kind, tid, id, now_ns)) {
      kind = Kind::kState;
      if (!Open(slot, kind, tid, id, now_ns)) return view;
    }
  }
  files_[slot].used_ns = now_ns;
  char room[512];
  const ssize_t size = ReadAgain(files_[slot].file, room, sizeof(room));
  const std::string_view text(room, size > 0 ? static_cast<size_t>(size) : 0);
  if (text.empty()) {
    view.ended = size < 0 && errno == ESRCH && files_[slot].file.StillOurs();
  } else if (kind == Kind::kState) {
    view.state = ParseState(text, &view.ended);
  } else if (ParseSystemCall(text, &view)) {
    view.state = wire::ThreadState::kThreadStateRunning;
  } else if (view.state == wire::ThreadState::kThreadStateUnknown && !view.ended) {
    view.state = IsOfDisk(view.descriptor) ? wire::ThreadState::kThreadStateUninterruptible
                                           : wire::ThreadState::kThreadStateSleeping;
  }
  if (!view.ended) ReadDelay(tid, id, now_ns, &view);
  return view;
}

std::string_view ThreadFiles::FileOf(int32_t descriptor, char* room, size_t bytes) noexcept {
  if (descriptor < 0) return {};
  TextBuffer<64> path;
  path.Add("/proc/self/fd/").AddNumber(static_cast<uint64_t>(descriptor));
  const ssize_t size = readlink(path.c_str(), room, bytes);
  std::string_view file(room, size > 0 ? static_cast<size_t>(size) : 0);
  for (const std::string_view kind : {std::string_view("pipe"), std::string_view("socket")}) {
    if (StartsWith(file, kind) && StartsWith(Slice(file, kind.size()), ":[")) return kind;
  }
  return file;
}

}  // namespace gpuprobe::injector
