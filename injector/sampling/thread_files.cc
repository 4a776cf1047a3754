#include "injector/sampling/thread_files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "injector/base/text.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kBetweenOpeningsNs = 250'000'000;

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
  return file.StillOurs() ? pread(file.get(), room, bytes, 0) : -1;
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
  if (number < 0 || number > INT32_MAX) return false;  // "-1": it waits outside of any, for a page
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

void ThreadFiles::Open(Files* files) noexcept {
  if (!ProcIsOurs()) return;
  const auto open = [files](const char* name, OwnDescriptor* file) noexcept {
    TextBuffer<64> path;
    path.Add("/proc/self/task/").AddNumber(files->tid).Add("/").Add(name);
    file->Open(path.c_str(), O_RDONLY);
  };
  open("syscall", &files->system_call);
  open("stat", &files->state);
  open("schedstat", &files->delay);
}

// Those of the thread; else, if it is time, in the place of the ones that were used least lately.
ThreadFiles::Files* ThreadFiles::Find(uint32_t tid, uint32_t id, uint64_t now_ns) noexcept {
  Files* oldest = &files_[0];
  for (Files& files : files_) {
    if (files.tid == tid && files.id == id && files.state.StillOurs()) return &files;
    if (files.tid == tid) files.used_ns = 0;  // the thread that had the number before, or closed by others
    if (files.used_ns < oldest->used_ns) oldest = &files;
  }
  if (opened_ns_ != 0 && now_ns - opened_ns_ < kBetweenOpeningsNs) return nullptr;
  opened_ns_ = now_ns;
  oldest->system_call.Close();
  oldest->state.Close();
  oldest->delay.Close();
  oldest->tid = tid;
  oldest->id = id;
  oldest->has_delay = false;
  Open(oldest);
  return oldest;
}

KernelView ThreadFiles::Look(uint32_t tid, uint32_t id, uint64_t now_ns) noexcept {
  KernelView view;
  Files* files = Find(tid, id, now_ns);
  if (files == nullptr) return view;
  files->used_ns = now_ns;
  char room[512];
  ssize_t size = ReadAgain(files->system_call, room, sizeof(room));
  const bool runs = size > 0 && ParseSystemCall({room, static_cast<size_t>(size)}, &view);
  if (runs) {
    view.state = wire::ThreadState::kThreadStateRunning;
  } else if (size = ReadAgain(files->state, room, sizeof(room)); size > 0) {
    view.state = ParseState({room, static_cast<size_t>(size)}, &view.ended);
  } else {
    view.ended = files->state.open() && files->state.StillOurs();
  }
  if (size = ReadAgain(files->delay, room, sizeof(room)); size > 0) {
    const uint64_t delay_ns = ParseRunDelay({room, static_cast<size_t>(size)});
    if (files->has_delay && delay_ns > files->delay_ns) view.run_delay_ns = delay_ns - files->delay_ns;
    files->delay_ns = delay_ns;
    files->has_delay = true;
  }
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
