/* Makes NVTX calls in a random order on several threads: ranges of every spelling, nested, across threads and
 * domains, with and without a partner, with payloads and names of all kinds. The same numbers make the same
 * calls. `random_ranges SEED THREADS STEPS FILE` writes into FILE what must come of it: for each thread its
 * ranges in the order in which it opened them (names and domains as hexadecimal bytes). */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory_checks.h"
#include "random_memory.h"

namespace {

struct Domain {
  nvtxDomainHandle_t handle = nullptr;
  std::string name;
  std::vector<std::pair<nvtxStringHandle_t, std::string>> strings;
};

struct Span {
  std::string kind;
  std::string name;
  std::string domain;
  int64_t parent = -1;  // its place in the same thread
  uint32_t category = 0;
  uint32_t color = 0;
  std::string payload;
  uint64_t opened_after = 0, opened_before = 0, closed_after = 0, closed_before = 0;  // 0: never
};

struct Launched {
  size_t bytes;
  int64_t range;
};

struct Log {
  pid_t tid = 0;
  std::vector<Span> spans;
  std::vector<Launched> launches;
};

// Started on one thread, to be ended on any.
struct Started {
  nvtxRangeId_t id;
  Log* log;
  size_t place;
};

std::mutex shared;
std::vector<Started> started;
std::vector<std::unique_ptr<Log>> logs;
std::vector<Domain> domains;
std::atomic<uint64_t> pops_without_push{0};
std::atomic<uint64_t> ends_without_start{0};
std::atomic<size_t> launches{0};

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string Hex(const std::string& text) {
  std::string hex;
  char two[3];
  for (const char c : text) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    hex += two;
  }
  return hex;
}

std::string Utf8(const std::wstring& text) {
  std::string narrow;
  for (const wchar_t wide : text) {
    uint32_t code = 0;
    static_assert(sizeof code == sizeof wide);
    std::memcpy(&code, &wide, sizeof code);
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
    if (code < 0x80) {
      narrow += static_cast<char>(code);
    } else if (code < 0x800) {
      narrow += static_cast<char>(0xc0 | (code >> 6));
    } else if (code < 0x10000) {
      narrow += static_cast<char>(0xe0 | (code >> 12));
      narrow += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    } else {
      narrow += static_cast<char>(0xf0 | (code >> 18));
      narrow += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
      narrow += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    }
    if (code >= 0x80) narrow += static_cast<char>(0x80 | (code & 0x3f));
  }
  return narrow;
}

std::wstring WideName(Random& random) {
  constexpr uint32_t kCodes[] = {'a',     ' ',    '"',      '\\',  '\n',  0xe9,   0x4e16,
                                 0x1f600, 0xd800, 0x110000, 0x7ff, 0x800, 0xffff, 0x10000};
  std::wstring text = L"w" + std::to_wstring(random.Below(100));
  for (size_t i = random.Below(random.One(8) ? 200 : 8); i > 0; --i)
    text += static_cast<wchar_t>(kCodes[random.Below(std::size(kCodes))]);
  return text;
}

std::string NarrowName(Random& random) {
  constexpr const char* kParts[] = {
      "step", " ",        "\"", "\\", "\n", "\xc3\xa9", "\xe4\xb8\x96", "\xf0\x9f\x98\x80",
      "\xff", "\xe4\xb8", "/",  "{}"};
  std::string text = random.One(12) ? "" : "n" + std::to_string(random.Below(100));
  for (size_t i = random.Below(random.One(8) ? 200 : 6); i > 0; --i)
    text += kParts[random.Below(std::size(kParts))];
  return text;
}

struct Thread {
  Thread(uint64_t seed, Log* its) : random(seed), log(its) {}
  Random random;
  Log* log;
  struct Open {
    size_t place;
    const Domain* domain;
  };
  std::vector<Open> stack;

  int64_t Innermost() const { return stack.empty() ? -1 : static_cast<int64_t>(stack.back().place); }
  Span& New(const char* kind, const Domain& domain) {
    Span& span = log->spans.emplace_back();
    span.kind = kind;
    span.domain = domain.name;
    span.parent = Innermost();
    return span;
  }
};

// Attributes whose text lives as long as this does.
struct Said {
  nvtxEventAttributes_t attributes{};
  std::string narrow;
  std::wstring wide;
};

void FillPayload(Random& random, nvtxEventAttributes_t& a, Span& span) {
  char text[64];
  const uint64_t bits = random.Bits() >> random.Below(64);
  switch (random.Below(8)) {
    case 0:
      a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      a.payload.ullValue = bits;
      span.payload = std::to_string(bits);
      break;
    case 1:
      a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      a.payload.llValue = -static_cast<int64_t>(bits >> 1);
      span.payload = std::to_string(a.payload.llValue);
      break;
    case 2:
      a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT32;
      a.payload.uiValue = static_cast<uint32_t>(bits);
      span.payload = std::to_string(a.payload.uiValue);
      break;
    case 3:
      a.payloadType = NVTX_PAYLOAD_TYPE_INT32;
      a.payload.iValue = static_cast<int32_t>(bits);
      span.payload = std::to_string(a.payload.iValue);
      break;
    case 4:
    case 5: {
      const double value = static_cast<double>(static_cast<int64_t>(bits)) / 1024;
      const bool narrow = random.One(2);
      a.payloadType = narrow ? NVTX_PAYLOAD_TYPE_FLOAT : NVTX_PAYLOAD_TYPE_DOUBLE;
      if (narrow) {
        a.payload.fValue = static_cast<float>(value);
      } else {
        a.payload.dValue = value;
      }
      std::snprintf(text, sizeof text, "%.17g", narrow ? static_cast<double>(a.payload.fValue) : value);
      span.payload = std::string("d") + text;
      break;
    }
    default:
      break;
  }
}

void Fill(Thread& thread, const Domain& domain, Said& said, Span& span) {
  Random& random = thread.random;
  nvtxEventAttributes_t& a = said.attributes;
  a.version = static_cast<uint16_t>(random.One(4) ? 1 : NVTX_VERSION);
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  if (random.One(2)) span.category = a.category = static_cast<uint32_t>(1 + random.Below(5));
  if (random.One(2)) {
    a.colorType = NVTX_COLOR_ARGB;
    span.color = a.color = static_cast<uint32_t>(random.Bits()) | 1;
  }
  FillPayload(random, a, span);
  switch (random.Below(4)) {
    case 0:
      said.narrow = NarrowName(random);
      a.messageType = NVTX_MESSAGE_TYPE_ASCII;
      a.message.ascii = said.narrow.c_str();
      span.name = said.narrow;
      break;
    case 1:
      said.wide = WideName(random);
      a.messageType = NVTX_MESSAGE_TYPE_UNICODE;
      a.message.unicode = said.wide.c_str();
      span.name = Utf8(said.wide);
      break;
    case 2:
      if (!domain.strings.empty()) {
        const auto& [handle, text] = domain.strings[random.Below(domain.strings.size())];
        a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        a.message.registered = handle;
        span.name = text;
        break;
      }
      [[fallthrough]];
    default:
      break;
  }
}

const Domain& AnyDomain(Thread& thread) { return domains[thread.random.Below(domains.size())]; }

// Calls `plain` for one of the short spellings of the default domain, `full` with attributes.
template <typename Narrow, typename Wide, typename Full>
void Spell(Thread& thread, const char* kind, const Domain& domain, Narrow narrow, Wide wide, Full full) {
  Span& span = thread.New(kind, domain);
  const size_t place = thread.log->spans.size() - 1;
  Said said;
  const size_t spelling = domain.handle == nullptr ? thread.random.Below(3) : 2;
  span.opened_after = Now();
  if (spelling == 0) {
    said.narrow = span.name = NarrowName(thread.random);
    narrow(place, said.narrow.c_str());
  } else if (spelling == 1) {
    said.wide = WideName(thread.random);
    span.name = Utf8(said.wide);
    wide(place, said.wide.c_str());
  } else {
    Fill(thread, domain, said, span);
    full(place, &said.attributes);
  }
  thread.log->spans[place].opened_before = Now();
}

void Push(Thread& thread) {
  if (thread.stack.size() >= 60) return;
  const Domain& domain = AnyDomain(thread);
  const auto level = std::count_if(thread.stack.begin(), thread.stack.end(),
                                   [&](const auto& open) { return open.domain == &domain; });
  int got = -1;
  Spell(
      thread, "push_pop", domain, [&](size_t, const char* text) { got = nvtxRangePushA(text); },
      [&](size_t, const wchar_t* text) { got = nvtxRangePushW(text); },
      [&](size_t, const nvtxEventAttributes_t* a) {
        got = domain.handle == nullptr && thread.random.One(2) ? nvtxRangePushEx(a)
                                                               : nvtxDomainRangePushEx(domain.handle, a);
      });
  EXPECT(got == level || std::getenv("NVTX_INJECTION64_PATH") == nullptr);
  thread.stack.push_back({thread.log->spans.size() - 1, &domain});
}

void Pop(Thread& thread) {
  const Domain& domain = AnyDomain(thread);
  auto open = std::find_if(thread.stack.rbegin(), thread.stack.rend(),
                           [&](const auto& each) { return each.domain == &domain; });
  if (open == thread.stack.rend()) {
    if (!thread.random.One(10)) return;
    ++pops_without_push;
    nvtxDomainRangePop(domain.handle);
    return;
  }
  Span& span = thread.log->spans[open->place];
  thread.stack.erase(std::next(open).base());
  span.closed_after = Now();
  domain.handle == nullptr&& thread.random.One(2) ? nvtxRangePop() : nvtxDomainRangePop(domain.handle);
  span.closed_before = Now();
}

void Start(Thread& thread) {
  const Domain& domain = AnyDomain(thread);
  nvtxRangeId_t id = 0;
  Spell(
      thread, "start_end", domain, [&](size_t, const char* text) { id = nvtxRangeStartA(text); },
      [&](size_t, const wchar_t* text) { id = nvtxRangeStartW(text); },
      [&](size_t, const nvtxEventAttributes_t* a) {
        id = domain.handle == nullptr ? nvtxRangeStartEx(a) : nvtxDomainRangeStartEx(domain.handle, a);
      });
  const std::lock_guard<std::mutex> lock(shared);
  started.push_back({id, thread.log, thread.log->spans.size() - 1});
}

void End(Thread& thread) {
  if (thread.random.One(40)) {
    ++ends_without_start;
    return nvtxRangeEnd((uint64_t{1} << 40) + thread.random.Below(1000));
  }
  const std::lock_guard<std::mutex> lock(shared);
  if (started.empty()) return;
  const size_t which = thread.random.Below(started.size());
  const Started ending = started[which];
  started.erase(started.begin() + static_cast<ptrdiff_t>(which));
  // The other thread's list may grow meanwhile: the times are noted when all threads are done.
  const uint64_t after = Now();
  thread.random.One(2) ? nvtxRangeEnd(ending.id) : nvtxDomainRangeEnd(domains[1].handle, ending.id);
  Span& span = ending.log->spans[ending.place];
  span.closed_after = after;
  span.closed_before = Now();
}

void Mark(Thread& thread) {
  const Domain& domain = AnyDomain(thread);
  Spell(
      thread, "mark", domain, [](size_t, const char* text) { nvtxMarkA(text); },
      [](size_t, const wchar_t* text) { nvtxMarkW(text); },
      [&](size_t, const nvtxEventAttributes_t* a) {
        domain.handle == nullptr ? nvtxMarkEx(a) : nvtxDomainMarkEx(domain.handle, a);
      });
  Span& span = thread.log->spans.back();
  span.closed_after = span.opened_after;
  span.closed_before = span.opened_before;
}

void Launch(Thread& thread, void* memory) {
  const size_t bytes = ++launches;
  CHECK(cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread));
  thread.log->launches.push_back({bytes, thread.Innermost()});
}

// A domain of a name that is there already is the same one; one that was destroyed is there again when it is
// created again.
void Upkeep(Thread& thread) {
  const Domain& domain = AnyDomain(thread);
  if (domain.handle == nullptr) return nvtxNameOsThreadA(static_cast<uint32_t>(thread.log->tid), "a thread");
  nvtxDomainDestroy(domain.handle);
  EXPECT(nvtxDomainCreateA(domain.name.c_str()) == domain.handle);
}

void Work(uint64_t seed, size_t steps, Log* log) {
  log->tid = gettid();
  log->spans.reserve(steps + 1);  // others note ends in it
  Thread thread(seed, log);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 1 << 20));
  const bool upkeep = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  for (size_t step = 0; step < steps; ++step) {
    switch (thread.random.Below(12)) {
      case 0:
      case 1:
      case 2:
        Push(thread);
        break;
      case 3:
      case 4:
      case 5:
        Pop(thread);
        break;
      case 6:
        Start(thread);
        break;
      case 7:
      case 8:
        End(thread);
        break;
      case 9:
        Mark(thread);
        break;
      case 10:
        Launch(thread, memory);
        break;
      default:
        if (upkeep) Upkeep(thread);
    }
  }
  while (!thread.stack.empty() && !thread.random.One(6)) Pop(thread);  // some stay open when the thread ends
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(cudaFree(memory));
}

void Prepare(Random& random) {
  domains.emplace_back();
  nvtxNameCategoryA(1, "first");
  for (const char* name : {"a domain", "another", "caf\xc3\xa9"}) {
    Domain& domain = domains.emplace_back();
    domain.name = name;
    domain.handle = domain.name.back() == 'r' ? nvtxDomainCreateW(L"another") : nvtxDomainCreateA(name);
    nvtxDomainNameCategoryA(domain.handle, 2, "second");
    nvtxDomainNameCategoryW(domain.handle, 3, L"dritte \u00e9");
    for (int i = 0; i < 5; ++i) {
      const std::string narrow = NarrowName(random);
      const std::wstring wide = WideName(random);
      domain.strings.emplace_back(nvtxDomainRegisterStringA(domain.handle, narrow.c_str()), narrow);
      domain.strings.emplace_back(nvtxDomainRegisterStringW(domain.handle, wide.c_str()), Utf8(wide));
    }
  }
}

void Write(const char* path) {
  FILE* file = std::fopen(path, "w");
  EXPECT(file != nullptr);
  std::fprintf(file, "{\"pops\": %" PRIu64 ", \"ends\": %" PRIu64 ", \"threads\": [",
               pops_without_push.load(), ends_without_start.load());
  for (size_t i = 0; i < logs.size(); ++i) {
    std::fprintf(file, "%s\n{\"tid\": %d, \"launches\": [", i == 0 ? "" : ",", logs[i]->tid);
    for (size_t j = 0; j < logs[i]->launches.size(); ++j)
      std::fprintf(file, "%s[%zu, %" PRId64 "]", j == 0 ? "" : ", ", logs[i]->launches[j].bytes,
                   logs[i]->launches[j].range);
    std::fprintf(file, "], \"ranges\": [");
    for (size_t j = 0; j < logs[i]->spans.size(); ++j) {
      const Span& s = logs[i]->spans[j];
      std::fprintf(file,
                   "%s\n{\"kind\": \"%s\", \"name\": \"%s\", \"domain\": \"%s\", \"parent\": %" PRId64
                   ", \"category\": %u, \"color\": %u, \"payload\": \"%s\", \"times\": [%" PRIu64 ", %" PRIu64
                   ", %" PRIu64 ", %" PRIu64 "]}",
                   j == 0 ? "" : ",", s.kind.c_str(), Hex(s.name).c_str(), Hex(s.domain).c_str(), s.parent,
                   s.category, s.color, s.payload.c_str(), s.opened_after, s.opened_before, s.closed_after,
                   s.closed_before);
    }
    std::fprintf(file, "]}");
  }
  std::fprintf(file, "]}\n");
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 5);
  const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const size_t threads = std::strtoul(argv[2], nullptr, 10);
  const size_t steps = std::strtoul(argv[3], nullptr, 10);
  CHECK(cudaFree(nullptr));
  Random random(seed);
  Prepare(random);
  // In two rounds: threads end, and others come.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; ++i) {
      logs.push_back(std::make_unique<Log>());
      others.emplace_back(Work, random.Bits(), steps, logs.back().get());
    }
    if (round == 0) {
      logs.push_back(std::make_unique<Log>());
      Work(random.Bits(), steps, logs.back().get());
    }
    for (std::thread& other : others) other.join();
  }
  Write(argv[4]);
  return 0;
}
