#include "injector/core/host_state.h"

#include <cstring>
#include <string_view>

#include "injector/base/own_descriptor.h"

namespace gpuprobe::injector {

constinit std::atomic<const char*> main_thread_waits_in{nullptr};
constinit std::atomic<uint64_t> main_thread_waits_since_ns{0};
constinit std::atomic<uint64_t> main_thread_waited_until_ns{0};

namespace {

// The number behind "\n<name>: ", 0 if there is none.
uint64_t NumberAfter(std::string_view text, std::string_view name) noexcept {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  uint64_t value = 0;
  for (size_t i = at + name.size(); i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  return value;
}

}  // namespace

// rchar and wchar count what went through the page cache, too: a checkpoint is progress before it is on disk.
uint64_t IoBytes() noexcept {
  char text[512];
  const std::string_view all(text, ReadOwnFile("/proc/self/io", text, sizeof(text)));
  return NumberAfter(all, "rchar: ") + NumberAfter(all, "wchar: ");
}

}  // namespace gpuprobe::injector
