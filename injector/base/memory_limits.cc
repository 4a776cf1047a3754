#include "injector/base/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "injector/base/own_descriptor.h"

namespace gpuprobe::injector {

namespace {

// Fields of /proc/self/statm.
constexpr int kMappedPages = 0;
constexpr int kDataPages = 5;
constexpr int kStatmFields = 7;

uint64_t Limit(__rlimit_resource resource) noexcept {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : limit.rlim_cur;
}

bool ReadStatm(uint64_t (&pages)[kStatmFields]) noexcept {
  char text[256];
  const size_t size = ReadOwnFile("/proc/self/statm", text, sizeof(text));
  int field = 0;
  bool in_number = false;
  for (size_t i = 0; i < size && field < kStatmFields; ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (digit) pages[field] = pages[field] * 10 + static_cast<uint64_t>(text[i] - '0');
    if (in_number && !digit) ++field;
    in_number = digit;
  }
  return field > kDataPages;
}

}  // namespace

size_t LimitedMemoryLeft() noexcept {
  const uint64_t address_space = Limit(RLIMIT_AS);
  const uint64_t data = Limit(RLIMIT_DATA);
  if (address_space == SIZE_MAX && data == SIZE_MAX) return SIZE_MAX;
  uint64_t pages[kStatmFields] = {};
  if (!ReadStatm(pages)) return 0;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto left = [&](uint64_t limit, uint64_t used) noexcept {
    return limit == SIZE_MAX ? limit : limit - std::min(limit, used * page_bytes);
  };
  return std::min(left(address_space, pages[kMappedPages]), left(data, pages[kDataPages]));
}

}  // namespace gpuprobe::injector
