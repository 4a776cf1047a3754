/* Payloads in layouts that the program describes to NVTX, and names of streams and devices. What must come of
 * it is written down in test_nvtx.py. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
#define EXPECT(condition) Expect(condition, #condition)

constexpr uint64_t kStaticId = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5;

struct Point {
  int32_t x;
  double y;
};

struct Everything {
  uint64_t comm;
  size_t bytes;
  int8_t small;
  float ratio;
  const char* text;
  int32_t values[3];
  uint16_t choice;
  Point point;
  int64_t last;
};

nvtxPayloadSchemaEntry_t Entry(uint64_t type, const char* name, uint64_t offset = 0, uint64_t flags = 0,
                               uint64_t length = 0) {
  nvtxPayloadSchemaEntry_t entry{};
  entry.type = type;
  entry.name = name;
  entry.offset = offset;
  entry.flags = flags;
  entry.arrayOrUnionDetail = length;
  return entry;
}

uint64_t Register(nvtxDomainHandle_t domain, const char* name, const nvtxPayloadSchemaEntry_t* entries,
                  size_t count, size_t size, uint64_t id = 0) {
  nvtxPayloadSchemaAttr_t attributes{};
  attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                         NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                         NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  attributes.name = name;
  attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  attributes.entries = entries;
  attributes.numEntries = count;
  attributes.payloadStaticSize = size;
  if (id != 0) {
    attributes.fieldMask |= NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
    attributes.schemaId = id;
  }
  return nvtxPayloadSchemaRegister(domain, &attributes);
}

uint64_t RegisterChoice(nvtxDomainHandle_t domain) {
  const nvtxPayloadEnum_t values[] = {{"one", 1, 0}, {"two", 2, 0}};
  nvtxPayloadEnumAttr_t attributes{};
  attributes.fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                         NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE;
  attributes.name = "Choice";
  attributes.entries = values;
  attributes.numEntries = 2;
  attributes.sizeOfEnum = sizeof(uint16_t);
  return nvtxPayloadEnumRegister(domain, &attributes);
}

uint64_t RegisterEverything(nvtxDomainHandle_t domain) {
  const nvtxPayloadSchemaEntry_t point[] = {Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT32, "x"),
                                            Entry(NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, "y")};
  const uint64_t point_id = Register(domain, "Point", point, 2, sizeof(Point));
  const uint64_t choice_id = RegisterChoice(domain);
  EXPECT(point_id != 0 && choice_id != 0);
  // Places are left to the rules of alignment.
  const nvtxPayloadSchemaEntry_t entries[] = {
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "comm"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "bytes"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT8, "small"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_FLOAT, "ratio"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, "text"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT32, "values", 0, NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, 3),
      Entry(choice_id, "choice"),
      Entry(point_id, "point"),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT64, "last"),
  };
  return Register(domain, "Everything", entries, sizeof(entries) / sizeof(entries[0]), sizeof(Everything));
}

nvtxEventAttributes_t WithPayload(const char* name, const nvtxPayloadData_t* data, size_t count) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  attributes.reserved0 = static_cast<int32_t>(count);
  attributes.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(data);
  return attributes;
}

void Payloads() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("payloads");
  const uint64_t everything = RegisterEverything(domain);
  EXPECT(everything != 0);
  const Everything value = {0x1234567890abcdef, 4096, -7, 0.5F, "not told", {1, 2, 3}, 2, {-3, 2.25}, -1};
  const nvtxPayloadData_t whole[] = {{everything, sizeof(value), &value}};
  nvtxEventAttributes_t attributes = WithPayload("whole", whole, 1);
  nvtxDomainRangePushEx(domain, &attributes);
  // What the program passes ends before the rest of the layout.
  const nvtxPayloadData_t part[] = {{everything, offsetof(Everything, small), &value}};
  attributes = WithPayload("part", part, 1);
  nvtxDomainMarkEx(domain, &attributes);
  const nvtxPayloadData_t unknown[] = {{everything + 1000, sizeof(value), &value}, {everything, 0, nullptr}};
  attributes = WithPayload("unknown", unknown, 2);
  nvtxDomainMarkEx(domain, &attributes);
  const nvtxPayloadData_t unsized[] = {{everything, SIZE_MAX, &value}};
  attributes = WithPayload("unsized", unsized, 1);
  const nvtxRangeId_t id = nvtxDomainRangeStartEx(domain, &attributes);
  nvtxDomainRangeEnd(domain, id);
  nvtxDomainRangePop(domain);

  // As NCCL does: an id of its own, places given, known in its domain alone.
  const nvtxPayloadSchemaEntry_t entries[] = {
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", 0),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "Message size [bytes]", 8)};
  EXPECT(Register(domain, "AllReduce", entries, 2, 0, kStaticId) == kStaticId);
  const uint64_t call[] = {77, 1 << 20};
  const nvtxPayloadData_t data[] = {{kStaticId, sizeof(call), call}};
  EXPECT(nvtxRangePushPayload(domain, data, 1) == 0);
  nvtxMarkPayload(nullptr, data, 1);
  const uint64_t more[] = {78, 0};
  const nvtxPayloadData_t at_end[] = {{kStaticId, sizeof(uint64_t), more}};
  EXPECT(nvtxRangePopPayload(domain, at_end, 1) == 0);
  const nvtxRangeId_t started = nvtxRangeStartPayload(domain, data, 1);
  nvtxRangeEndPayload(domain, started, nullptr, 0);
  EXPECT(nvtxDomainIsEnabled(domain) == 1);
  EXPECT(nvtxPayloadSchemaRegister(domain, nullptr) == 0);
}

void Streams() {
  cudaStream_t runtime = nullptr;
  cudaStream_t driver = nullptr;
  cudaStream_t resource = nullptr;
  cudaStream_t nameless = nullptr;
  for (cudaStream_t* stream : {&runtime, &driver, &resource, &nameless})
    EXPECT(cudaStreamCreate(stream) == cudaSuccess);
  nvtxNameCudaStreamA(runtime, "before");
  nvtxNameCudaStreamW(runtime, L"compute \u4e16");
  nvtxNameCuStreamA(driver, "copies");
  nvtxResourceAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  attributes.identifierType = NVTX_RESOURCE_TYPE_CUDART_STREAM;
  attributes.identifier.pValue = resource;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = "a resource";
  const nvtxResourceHandle_t handle = nvtxDomainResourceCreate(nullptr, &attributes);
  nvtxNameCudaDeviceA(0, "the only one");
  nvtxNameCudaStreamA(nullptr, "the default stream has no number that could be known");
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, 64) == cudaSuccess);
  size_t bytes = 1;
  for (cudaStream_t stream : {runtime, driver, resource, nameless}) {
    EXPECT(cudaMemsetAsync(memory, 0, bytes++, stream) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  nvtxDomainResourceDestroy(handle);
  EXPECT(cudaFree(memory) == cudaSuccess);
  for (cudaStream_t stream : {runtime, driver, resource, nameless})
    EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
}

}  // namespace

int main() {
  EXPECT(cudaFree(nullptr) == cudaSuccess);
  Payloads();
  Streams();
  return 0;
}
