#include "tests/sim/nccl/log.h"

#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>

#include "tests/sim/core/nccl_seam.h"

namespace gpusim::nccl {
namespace {

constexpr const char* kLevels[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
constexpr int kVersion = 1;
constexpr int kWarn = 2;

// In the order of their bits.
constexpr const char* kParts[] = {"INIT",  "COLL", "P2P",   "SHM",  "NET",       "GRAPH", "TUNING",  "ENV",
                                  "ALLOC", "CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG",   "PROFILE", "RAS"};
constexpr uint64_t kUsualParts = 1u << 0 | 1u << 7 | 1u << 12;  // INIT, ENV, BOOTSTRAP

int LevelWanted() {
  const char* wanted = std::getenv("NCCL_DEBUG");
  for (size_t level = 0; wanted != nullptr && level < std::size(kLevels); ++level) {
    if (strcasecmp(wanted, kLevels[level]) == 0) return static_cast<int>(level);
  }
  return wanted == nullptr ? 0 : -1;
}

uint64_t PartsOf(const std::string& name) {
  if (strcasecmp(name.c_str(), "ALL") == 0) return ~uint64_t{0};
  for (size_t bit = 0; bit < std::size(kParts); ++bit) {
    if (strcasecmp(name.c_str(), kParts[bit]) == 0) return uint64_t{1} << bit;
  }
  return 0;
}

uint64_t PartsWanted() {
  const char* text = std::getenv("NCCL_DEBUG_SUBSYS");
  if (text == nullptr) return kUsualParts;
  const bool inverted = *text == '^';
  std::string left(inverted ? text + 1 : text);
  uint64_t parts = 0;
  while (!left.empty()) {
    const size_t comma = left.find(',');
    parts |= PartsOf(left.substr(0, comma));
    left = comma == std::string::npos ? "" : left.substr(comma + 1);
  }
  return inverted ? ~parts : parts;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

// With the host's name for %h and the process id for %p.
FILE* OpenFile() {
  const char* text = std::getenv("NCCL_DEBUG_FILE");
  if (text == nullptr) return stdout;
  std::string path;
  for (const char* at = text; *at != '\0'; ++at) {
    const char next = *at == '%' ? at[1] : '\0';
    if (next == 'h') path += HostName();
    if (next == 'p') path += std::to_string(getpid());
    if (next == '%') path += '%';
    if (next == 'h' || next == 'p' || next == '%') {
      ++at;
    } else {
      path += *at;
    }
  }
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return stdout;
  setlinebuf(file);
  return file;
}

struct Settings {
  int level = LevelWanted();
  uint64_t parts = PartsWanted();
  std::string host = HostName();
  FILE* file = level > kVersion ? OpenFile() : stdout;
};

}  // namespace

void Log(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  static const auto* const kSettings = new Settings;
  static auto* const mutex = new std::mutex;
  if (kSettings->level < level || (flags & kSettings->parts) == 0) return;
  std::string text = level == kWarn ? "\n" : "";
  if (level != kVersion) {
    text += kSettings->host + ":" + std::to_string(getpid()) + ":" + std::to_string(syscall(SYS_gettid)) +
            " [" + std::to_string(CurrentDevice()) + "] ";
    if (level == kWarn) text += std::string(file) + ":" + std::to_string(line) + " ";
    text += std::string("NCCL ") + kLevels[level] + " ";
  }
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  const std::lock_guard<std::mutex> lock(*mutex);
  std::fprintf(kSettings->file, "%s%s\n", text.c_str(), message);
  std::fflush(kSettings->file);
}

}  // namespace gpusim::nccl
