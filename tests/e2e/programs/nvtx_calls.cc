/* Makes every call of NVTX 3's C API that opens, closes or names something, on the main thread and on another
 * one. What must come of it is written down in test_nvtx.py. `nvtx_calls unbalanced` pops and ends what
 * nobody pushed and started, and leaves a range open. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtSync.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
#define EXPECT(condition) Expect(condition, #condition)

nvtxEventAttributes_t Attributes() {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return attributes;
}

nvtxEventAttributes_t Named(const char* name) {
  nvtxEventAttributes_t attributes = Attributes();
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  return attributes;
}

void Core() {
  EXPECT(nvtxRangePushA("push A") == 0);
  EXPECT(nvtxRangePushW(L"push W \u00e9\u4e16") == 1);
  nvtxEventAttributes_t attributes = Named("push Ex");
  attributes.category = 7;
  attributes.colorType = NVTX_COLOR_ARGB;
  attributes.color = 0xff76b900;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = 1ull << 40;
  EXPECT(nvtxRangePushEx(&attributes) == 2);
  nvtxMarkA("mark A");
  nvtxMarkW(L"mark W");
  attributes = Named("mark Ex");
  attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  attributes.payload.dValue = 2.5;
  nvtxMarkEx(&attributes);
  EXPECT(nvtxRangePop() == 2);
  EXPECT(nvtxRangePop() == 1);
  EXPECT(nvtxRangePop() == 0);
  nvtxEventAttributes_t wide = Attributes();
  wide.messageType = NVTX_MESSAGE_TYPE_UNICODE;
  wide.message.unicode = L"wide Ex";
  wide.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  wide.payload.iValue = -3;
  nvtxRangePushEx(&wide);
  nvtxRangePop();
}

// Started in one order, ended in another, on two threads.
void Across() {
  const nvtxRangeId_t a = nvtxRangeStartA("start A");
  const nvtxRangeId_t w = nvtxRangeStartW(L"start W");
  const nvtxEventAttributes_t attributes = Named("start Ex");
  const nvtxRangeId_t ex = nvtxRangeStartEx(&attributes);
  std::thread([a, ex] {
    nvtxNameOsThreadA(0, "worker");
    nvtxRangePushA("on the worker");
    void* memory = nullptr;
    EXPECT(cudaMalloc(&memory, 64) == cudaSuccess);
    EXPECT(cudaMemset(memory, 0, 64) == cudaSuccess);
    EXPECT(cudaFree(memory) == cudaSuccess);
    nvtxRangeEnd(a);
    nvtxRangePop();
    nvtxRangeEnd(ex);
  }).join();
  nvtxRangeEnd(w);
}

void Domains() {
  const nvtxDomainHandle_t ascii = nvtxDomainCreateA("domain A");
  const nvtxDomainHandle_t wide = nvtxDomainCreateW(L"domain W");
  nvtxDomainNameCategoryA(ascii, 3, "category three");
  nvtxDomainNameCategoryW(ascii, 4, L"category four");
  const nvtxStringHandle_t registered = nvtxDomainRegisterStringA(ascii, "registered A");
  const nvtxStringHandle_t registered_wide = nvtxDomainRegisterStringW(ascii, L"registered W");
  nvtxEventAttributes_t attributes = Attributes();
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = registered;
  attributes.category = 3;
  EXPECT(nvtxDomainRangePushEx(ascii, &attributes) == 0);
  const nvtxEventAttributes_t inner = Named("in domain W");
  EXPECT(nvtxDomainRangePushEx(wide, &inner) == 0);  // a stack of its own
  attributes.message.registered = registered_wide;
  attributes.category = 4;
  nvtxDomainMarkEx(ascii, &attributes);
  EXPECT(nvtxDomainRangePop(ascii) == 0);  // not the innermost of the thread
  EXPECT(nvtxDomainRangePop(wide) == 0);
  const nvtxEventAttributes_t started = Named("started in domain A");
  const nvtxRangeId_t id = nvtxDomainRangeStartEx(ascii, &started);
  nvtxDomainRangeEnd(ascii, id);
  // What names things, without ranges.
  nvtxResourceAttributes_t resource{};
  resource.version = NVTX_VERSION;
  resource.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  resource.identifierType = NVTX_RESOURCE_TYPE_GENERIC_POINTER;
  resource.identifier.pValue = &resource;
  resource.messageType = NVTX_MESSAGE_TYPE_ASCII;
  resource.message.ascii = "resource";
  nvtxDomainResourceDestroy(nvtxDomainResourceCreate(ascii, &resource));
  nvtxSyncUserAttributes_t sync{};
  sync.version = NVTX_VERSION;
  sync.size = NVTX_SYNCUSER_ATTRIB_STRUCT_SIZE;
  const nvtxSyncUser_t mutex = nvtxDomainSyncUserCreate(ascii, &sync);
  nvtxDomainSyncUserAcquireStart(mutex);
  nvtxDomainSyncUserAcquireFailed(mutex);
  nvtxDomainSyncUserAcquireStart(mutex);
  nvtxDomainSyncUserAcquireSuccess(mutex);
  nvtxDomainSyncUserReleasing(mutex);
  nvtxDomainSyncUserDestroy(mutex);
  nvtxDomainDestroy(wide);
  nvtxDomainDestroy(ascii);
}

void Names() {
  cudaStream_t stream = nullptr;
  EXPECT(cudaStreamCreate(&stream) == cudaSuccess);
  nvtxNameCategoryA(7, "category seven");
  nvtxNameCategoryW(8, L"category eight");
  nvtxNameOsThreadW(0, L"main thread");
  nvtxNameCudaStreamA(stream, "stream A");
  nvtxNameCudaStreamW(stream, L"stream W");
  nvtxNameCudaDeviceA(0, "device");
  nvtxNameCuStreamA(stream, "stream of the driver");
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
}

void Unbalanced() {
  EXPECT(nvtxRangePop() < 0);
  nvtxRangePushA("left open");
  nvtxRangePushA("popped");
  nvtxRangePop();
  nvtxRangeEnd(123456);
  nvtxRangeEnd(123457);
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("elsewhere");
  EXPECT(nvtxDomainRangePop(domain) < 0);  // what is open is the default domain's
  nvtxRangePushA(nullptr);
  nvtxRangePop();
  const nvtxEventAttributes_t empty{};
  nvtxRangePushEx(&empty);
  nvtxRangePop();
  nvtxRangePushEx(nullptr);
  nvtxRangePop();
  nvtxMarkA(nullptr);
}

// Names are given before anything has initialised CUDA, and used when it is up.
void Early() {
  nvtxNameOsThreadA(0, "named early");
  nvtxNameCategoryA(7, "category seven");
  nvtxDomainHandle_t domain = nvtxDomainCreateA("early domain");
  nvtxDomainNameCategoryW(domain, 7, L"its own \u4e16");
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, 64) == cudaSuccess);
  for (nvtxDomainHandle_t each : {static_cast<nvtxDomainHandle_t>(nullptr), domain}) {
    nvtxEventAttributes_t attributes = Named("in category");
    attributes.category = 7;
    nvtxDomainRangePushEx(each, &attributes);
    EXPECT(cudaMemset(memory, 0, 64) == cudaSuccess);
    nvtxDomainRangePop(each);
  }
  EXPECT(cudaFree(memory) == cudaSuccess);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "early") == 0) {
    Early();
    return 0;
  }
  EXPECT(cudaFree(nullptr) == cudaSuccess);
  nvtxInitialize(nullptr);
  if (argc > 1 && std::strcmp(argv[1], "unbalanced") == 0) {
    Unbalanced();
    return 0;
  }
  Core();
  Across();
  Domains();
  Names();
  return 0;
}
