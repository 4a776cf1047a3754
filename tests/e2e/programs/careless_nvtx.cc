/* NVTX calls with pointers to what is not there: harmless as long as no tool listens. `careless_nvtx` makes
 * them all, `careless_nvtx refused` in a sandbox that does not allow process_vm_readv, and `careless_nvtx
 * race` while another thread unmaps what is passed. `careless_nvtx flood` makes 2,000,000 ranges and marks as
 * fast as it can, nested in each other. */
#include <cuda_runtime_api.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr size_t kPage = 4096;

char* MapPages(size_t pages) {
  void* memory = mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<char*>(memory);
}

// Where nobody maps anything who does not ask for that place.
template <typename T = char>
T* Gone() {
  static uintptr_t next = uintptr_t{1} << 44;
  void* place = reinterpret_cast<void*>(next += 16 * kPage);
  void* memory = mmap(place, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  std::strcpy(static_cast<char*>(memory), "gone");
  munmap(memory, kPage);
  return static_cast<T*>(memory);
}

// The last `bytes` bytes of a page before one that cannot be read.
template <typename T = char>
T* BeforeTheEnd(size_t bytes) {
  char* memory = MapPages(2);
  std::memset(memory, 'x', kPage);
  mprotect(memory + kPage, kPage, PROT_NONE);
  return reinterpret_cast<T*>(memory + kPage - bytes);
}

nvtxEventAttributes_t Attributes(const char* text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  return attributes;
}

void Texts() {
  const auto* strange = reinterpret_cast<const char*>(0x4141414141414141);
  const char* endless = BeforeTheEnd(100);
  for (const char* text : {static_cast<const char*>(Gone()), endless, strange,
                           reinterpret_cast<const char*>(-1), reinterpret_cast<const char*>(1)}) {
    nvtxRangePushA(text);
    nvtxRangePop();
    nvtxMarkA(text);
    nvtxRangeEnd(nvtxRangeStartA(text));
    nvtxEventAttributes_t attributes = Attributes(text);
    nvtxMarkEx(&attributes);
  }
  const auto* endless_wide = BeforeTheEnd<wchar_t>(100);
  for (const wchar_t* text : {static_cast<const wchar_t*>(Gone<wchar_t>()), endless_wide}) {
    nvtxRangePushW(text);
    nvtxRangePop();
    nvtxEventAttributes_t attributes = Attributes(nullptr);
    attributes.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    attributes.message.unicode = text;
    nvtxMarkEx(&attributes);
  }
}

void AttributeStructs() {
  auto* half = BeforeTheEnd<nvtxEventAttributes_t>(24);
  for (auto* attributes : {Gone<nvtxEventAttributes_t>(), half}) {
    nvtxRangePushEx(attributes);
    nvtxRangePop();
    nvtxMarkEx(attributes);
    nvtxRangeEnd(nvtxRangeStartEx(attributes));
  }
  nvtxEventAttributes_t garbage;
  std::memset(&garbage, 0xa5, sizeof(garbage));
  nvtxMarkEx(&garbage);
}

void Handles() {
  nvtxEventAttributes_t attributes = Attributes(nullptr);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = reinterpret_cast<nvtxStringHandle_t>(0x1234);
  const auto domain = reinterpret_cast<nvtxDomainHandle_t>(0x5678);
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainRangePop(domain);
  nvtxDomainDestroy(domain);
  nvtxRangeEnd(0x123456789);
}

// Their names are lost: 5 texts and an attributes struct.
void Names() {
  const char* gone = Gone();
  nvtxNameOsThreadA(1, gone);
  nvtxNameCategoryA(1, gone);
  nvtxNameCudaDeviceA(0, gone);
  nvtxDomainHandle_t domain = nvtxDomainCreateA(gone);
  nvtxDomainRegisterStringA(domain, gone);
  nvtxDomainResourceCreate(domain, Gone<nvtxResourceAttributes_t>());
}

uint64_t Register(nvtxDomainHandle_t domain, nvtxPayloadSchemaEntry_t* entries) {
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = 1;
  return nvtxPayloadSchemaRegister(domain, &schema);
}

// Lost: 2 layouts, a field's name, 2 payloads and 2 lists of payloads.
void Payloads() {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("payloads");
  nvtxPayloadSchemaRegister(domain, Gone<nvtxPayloadSchemaAttr_t>());
  Register(domain, Gone<nvtxPayloadSchemaEntry_t>());
  nvtxPayloadSchemaEntry_t entry{};
  entry.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64;
  entry.name = Gone();
  const uint64_t schema = Register(domain, &entry);
  nvtxPayloadData_t data{};
  data.schemaId = schema;
  data.size = sizeof(uint64_t);
  void* half = BeforeTheEnd<void>(4);
  for (void* payload : {Gone<void>(), half}) {
    data.payload = payload;
    nvtxEventAttributes_t attributes = Attributes("payload");
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;
    attributes.payload.ullValue = reinterpret_cast<uint64_t>(&data);
    nvtxDomainMarkEx(domain, &attributes);
    attributes.payload.ullValue = reinterpret_cast<uint64_t>(payload);
    attributes.reserved0 = 1000000;
    nvtxDomainMarkEx(domain, &attributes);
  }
  nvtxRangePushPayload(domain, &data, SIZE_MAX);
  nvtxRangePop();
}

ucontext_t main_context;
ucontext_t fiber_context;
const char* fibers_text;

void Fiber() {
  char text[32] = "on a fiber's stack";
  nvtxEventAttributes_t attributes = Attributes(text);
  nvtxMarkEx(&attributes);
  fibers_text = text;
  swapcontext(&fiber_context, &main_context);
}

// Texts on stacks that have gone: a fiber's and a thread's. The frames that are in use can be read.
void Stacks() {
  constexpr size_t kPages = 16;
  char* stack = MapPages(kPages);
  getcontext(&fiber_context);
  fiber_context.uc_stack.ss_sp = stack;
  fiber_context.uc_stack.ss_size = kPages * kPage;
  makecontext(&fiber_context, Fiber, 0);
  swapcontext(&main_context, &fiber_context);
  nvtxMarkA(fibers_text);
  munmap(stack, kPages * kPage);
  nvtxMarkA(fibers_text);
  std::thread([] {
    char text[] = "on a thread's stack";
    nvtxMarkA(text);
  }).join();
}

// What can be read, wherever it lies.
void Readable() {
  char on_stack[] = "on the stack";
  static char written[] = "in the program's data";
  nvtxMarkA("a constant");
  nvtxMarkA(on_stack);
  nvtxMarkA(written);
  nvtxMarkA(std::string("on the heap, and longer than what a string has room for").c_str());
  char* last = BeforeTheEnd(5);
  std::memcpy(last, "last", 5);
  nvtxMarkA(last);
  nvtxMarkW(L"wide");
  auto* attributes = new nvtxEventAttributes_t(Attributes("attributes on the heap"));
  nvtxMarkEx(attributes);
  delete attributes;
}

void RefuseCopies() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::abort();
}

// One thread pushes a text in a page that another one maps and unmaps.
void Race() {
  char* page = MapPages(1);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      if (mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
        std::abort();
      std::strcpy(page, "there");
      mprotect(page, kPage, PROT_NONE);
    }
  });
  for (int i = 0; i < 20000; ++i) nvtxMarkA(page);
  over = true;
  other.join();
}

void Flood() {
  for (int i = 0; i < 500000; ++i) {
    nvtxRangePushA("outer");
    nvtxRangePushA("inner");
    nvtxRangePushA("innermost");
    nvtxMarkA("mark");
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePop();
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "refused") RefuseCopies();
  nvtxNameOsThreadA(1, Gone());  // before CUDA: lost as well
  void* memory = nullptr;
  if (cudaMalloc(&memory, kPage) != cudaSuccess) return 1;
  if (mode == "race") {
    Race();
  } else if (mode == "flood") {
    Flood();
  } else {
    for (void (*part)() : {Texts, AttributeStructs, Handles, Names, Payloads, Stacks, Readable}) {
      part();
      std::puts("survived");
    }
  }
  cudaMemset(memory, 0, kPage);
  cudaDeviceSynchronize();
  cudaFree(memory);
  std::puts("done");
  return 0;
}
