#include "collector/cli/keyboard.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/cli/output.h"
#include "collector/cli/screen.h"

namespace gpuprobe::cli {
namespace {

// The alternate screen without a cursor, and back.
constexpr char kOwnScreen[] = "\x1b[?1049h\x1b[?25l";
constexpr char kFormerScreen[] = "\x1b[?25h\x1b[?1049l";

struct Sequence {
  std::string_view bytes;
  Key key;
};

// Longest first: an escape alone is a key too.
constexpr Sequence kSequences[] = {
    {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown}, {"\x1b[A", Key::kUp}, {"\x1bOA", Key::kUp},
    {"\x1b[B", Key::kDown},    {"\x1bOB", Key::kDown},      {"\x1b", Key::kBack}, {"\x7f", Key::kBack},
    {"k", Key::kUp},           {"j", Key::kDown},           {"\r", Key::kEnter},  {"\n", Key::kEnter},
    {"s", Key::kSort},         {"q", Key::kQuit},           {"\x04", Key::kQuit}};

}  // namespace

std::unique_ptr<Keyboard> Keyboard::Open() {
  termios before{};
  if (!CanRedraw(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0) return nullptr;
  absl::StatusOr<recording::SignalFd> signals =
      recording::SignalFd::Open({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH});
  if (!signals.ok()) return nullptr;
  std::unique_ptr<Keyboard> keyboard(new Keyboard(*std::move(signals), before));
  keyboard->Enter();
  return keyboard;
}

Keyboard::~Keyboard() { Leave(); }

void Keyboard::Enter() const {
  termios keys = before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys.c_cc[VMIN] = 0;
  keys.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
  Print(kOwnScreen);
  FlushOutput();
}

void Keyboard::Leave() const {
  Print(kFormerScreen);
  FlushOutput();
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

// Stops as the terminal's user asked, and goes on when continued.
void Keyboard::Suspend() const {
  Leave();
  raise(SIGSTOP);
  Enter();
}

Key Keyboard::Read() {
  char bytes[16];
  const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return Key::kQuit;  // the terminal is gone
  if (n < 0) return Key::kNone;
  const std::string_view read_bytes(bytes, static_cast<size_t>(n));
  for (const Sequence& sequence : kSequences) {
    if (read_bytes.starts_with(sequence.bytes)) return sequence.key;
  }
  return Key::kNone;
}

Key Keyboard::Await(std::chrono::milliseconds patience) {
  pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                     {.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  if (poll(events, 2, static_cast<int>(patience.count())) <= 0) return Key::kNone;
  if (events[1].revents != 0) {
    bool stop = false;
    signals_.ReadAll([&](const signalfd_siginfo& info) {
      if (info.ssi_signo == SIGTSTP) stop = true;
      if (info.ssi_signo != SIGTSTP && info.ssi_signo != SIGWINCH)
        end_signal_ = static_cast<int>(info.ssi_signo);
    });
    if (stop) Suspend();
    return end_signal_ != 0 ? Key::kQuit : Key::kNone;
  }
  return Read();
}

size_t Keyboard::Rows() {
  winsize size{};
  constexpr size_t kUsual = 24;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsual;
}

void Keyboard::Show(std::string_view text) const {
  // Each line erases what is left of the one that it replaces: nothing flickers.
  std::string out = "\x1b[H";
  const size_t rows = Rows();
  for (size_t row = 0; row < rows && !text.empty(); ++row) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::StrAppend(&out, row > 0 ? "\r\n" : "", std::string(text.substr(0, end)), "\x1b[K");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  absl::StrAppend(&out, "\x1b[J");
  Print(out);
  FlushOutput();
}

}  // namespace gpuprobe::cli
