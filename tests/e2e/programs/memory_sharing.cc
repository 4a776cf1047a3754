/* Two processes that give each other memory by every way that CUDA has: one exports, and runs this program
 * again as the one that imports. Each has memory of its own beside it, so that what is counted twice, or as
 * released that was never obtained, shows in its ledger. `memory_sharing` */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "memory_checks.h"

namespace {

constexpr size_t kGranule = 2 * kMiB;
constexpr size_t kBytes[] = {3 * kMiB + 7, 2 * kMiB + 5, kMiB + 1,
                             kMiB + 3};                      // linear, twice; of a pool, twice
constexpr unsigned char kMark[] = {11, 22, 33, 44, 55, 66};  // the last: virtual memory, external

// What the exporter tells the importer; descriptors go with it.
struct Parcel {
  cudaIpcMemHandle_t runtime{};
  CUipcMemHandle driver{};
  cudaMemPoolPtrExportData runtime_pointer{};
  CUmemPoolPtrExportData driver_pointer{};
};
enum Descriptor { kPhysical, kRuntimePool, kDriverPool, kRuntimeExternal, kDriverExternal, kDescriptors };

void Send(int channel, const Parcel& parcel, const int* descriptors) {
  char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
  iovec part{const_cast<Parcel*>(&parcel), sizeof parcel};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * kDescriptors);
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(int) * kDescriptors);
  EXPECT(sendmsg(channel, &message, 0) == static_cast<ssize_t>(sizeof parcel));
}

Parcel Receive(int channel, int* descriptors) {
  Parcel parcel;
  char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
  iovec part{&parcel, sizeof parcel};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  EXPECT(recvmsg(channel, &message, MSG_WAITALL) == static_cast<ssize_t>(sizeof parcel));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  EXPECT(header != nullptr && header->cmsg_len == CMSG_LEN(sizeof(int) * kDescriptors));
  std::memcpy(descriptors, CMSG_DATA(header), sizeof(int) * kDescriptors);
  return parcel;
}

void Meet(int channel) {
  char byte = 1;
  EXPECT(write(channel, &byte, 1) == 1);
  EXPECT(read(channel, &byte, 1) == 1);
}

void* Pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// The other one's mark is there; ours goes beside it.
void Visit(CUdeviceptr address, unsigned char mark) {
  unsigned char found = 0;
  CHECK(cudaMemcpy(&found, Pointer(address), 1, cudaMemcpyDeviceToHost));
  EXPECT(found == mark);
  CHECK(cudaMemset(Pointer(address + 1), mark + 1, 1));
}

void ExpectVisited(const void* address, unsigned char mark) {
  unsigned char found[2] = {};
  CHECK(cudaMemcpy(found, address, 2, cudaMemcpyDeviceToHost));
  EXPECT(found[0] == mark && found[1] == mark + 1);
}

void MakeAccessible(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
}

// Stands for memory that another API made.
int OtherApisMemory() {
  const int file = memfd_create("other-api", MFD_CLOEXEC);
  const unsigned char mark = kMark[5];
  EXPECT(file >= 0 && ftruncate(file, 8 * kMiB) == 0 && pwrite(file, &mark, 1, 0) == 1);
  return file;
}

void Export(int channel) {
  CHECK(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  Parcel parcel;
  int descriptors[kDescriptors] = {};
  void* linear[2] = {};
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaMalloc(&linear[i], kBytes[i]));
    CHECK(cudaMemset(linear[i], kMark[i], 1));
  }
  CHECK(cudaIpcGetMemHandle(&parcel.runtime, linear[0]));
  CHECK(cuIpcGetMemHandle(&parcel.driver, reinterpret_cast<CUdeviceptr>(linear[1])));

  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemCreate(&physical, 2 * kGranule, &properties, 0));
  CHECK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  CHECK(cuMemMap(address, 2 * kGranule, 0, physical, 0));
  MakeAccessible(address, 2 * kGranule);
  CHECK(cudaMemset(Pointer(address), kMark[4], 1));
  CHECK(cuMemExportToShareableHandle(&descriptors[kPhysical], physical,
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

  cudaMemPoolProps pool_properties{};
  pool_properties.allocType = cudaMemAllocationTypePinned;
  pool_properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  pool_properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  void* ordered[2] = {};
  CHECK(cudaMemPoolCreate(&pool, &pool_properties));
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaMallocFromPoolAsync(&ordered[i], kBytes[2 + i], pool, stream));
    CHECK(cudaMemsetAsync(ordered[i], kMark[2 + i], 1, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemPoolExportToShareableHandle(&descriptors[kRuntimePool], pool,
                                           cudaMemHandleTypePosixFileDescriptor, 0));
  CHECK(cuMemPoolExportToShareableHandle(&descriptors[kDriverPool], pool,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cudaMemPoolExportPointer(&parcel.runtime_pointer, ordered[0]));
  CHECK(cuMemPoolExportPointer(&parcel.driver_pointer, reinterpret_cast<CUdeviceptr>(ordered[1])));
  descriptors[kRuntimeExternal] = OtherApisMemory();
  descriptors[kDriverExternal] = OtherApisMemory();
  Send(channel, parcel, descriptors);
  for (const int descriptor : descriptors) close(descriptor);

  Meet(channel);  // all of it is imported
  Meet(channel);  // and given back
  for (int i = 0; i < 2; ++i) {
    ExpectVisited(linear[i], kMark[i]);
    ExpectVisited(ordered[i], kMark[2 + i]);
    CHECK(cudaFree(linear[i]));
    CHECK(cudaFreeAsync(ordered[i], stream));
  }
  ExpectVisited(Pointer(address), kMark[4]);
  CHECK(cuMemRelease(physical));
  CHECK(cuMemUnmap(address, 2 * kGranule));
  CHECK(cuMemAddressFree(address, 2 * kGranule));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(stream));
}

struct External {
  CUdeviceptr buffer = 0;
  CUmipmappedArray levels = nullptr;
};

External ImportByDriver(int descriptor, CUexternalMemory* memory) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
  description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  description.handle.fd = descriptor;
  description.size = 8 * kMiB;
  CHECK(cuImportExternalMemory(memory, &description));
  External external;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  buffer.size = 4 * kMiB;
  CHECK(cuExternalMemoryGetMappedBuffer(&external.buffer, *memory, &buffer));
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC levels{};
  levels.offset = 4 * kMiB;
  levels.arrayDesc = {64, 32, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  levels.numLevels = 3;
  CHECK(cuExternalMemoryGetMappedMipmappedArray(&external.levels, *memory, &levels));
  buffer.size = 9 * kMiB;
  CUdeviceptr beyond = 0;
  EXPECT(cuExternalMemoryGetMappedBuffer(&beyond, *memory, &buffer) != CUDA_SUCCESS);
  return external;
}

External ImportByRuntime(int descriptor, cudaExternalMemory_t* memory) {
  cudaExternalMemoryHandleDesc description{};
  description.type = cudaExternalMemoryHandleTypeOpaqueFd;
  description.handle.fd = descriptor;
  description.size = 8 * kMiB;
  CHECK(cudaImportExternalMemory(memory, &description));
  External external;
  cudaExternalMemoryBufferDesc buffer{};
  buffer.size = 4 * kMiB;
  CHECK(cudaExternalMemoryGetMappedBuffer(reinterpret_cast<void**>(&external.buffer), *memory, &buffer));
  cudaExternalMemoryMipmappedArrayDesc levels{};
  levels.offset = 4 * kMiB;
  levels.formatDesc = cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
  levels.extent = {65, 33, 0};
  levels.numLevels = 5;
  CHECK(cudaExternalMemoryGetMappedMipmappedArray(reinterpret_cast<cudaMipmappedArray_t*>(&external.levels),
                                                  *memory, &levels));
  return external;
}

void Import(int channel) {
  CHECK(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  void* own[3] = {};
  CHECK(cudaMalloc(&own[0], 5 * kMiB));
  int descriptors[kDescriptors] = {};
  Parcel parcel = Receive(channel, descriptors);

  // Opened twice: the second time it is there already.
  CUdeviceptr opened[2] = {};
  CUdeviceptr again = 0;
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&opened[0]), parcel.runtime,
                             cudaIpcMemLazyEnablePeerAccess));
  CHECK(cuIpcOpenMemHandle(&opened[1], parcel.driver, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(cuIpcOpenMemHandle(&again, parcel.driver, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT(again == opened[1]);
  CHECK(cuIpcCloseMemHandle(again));
  EXPECT(cuMemFree(opened[0]) != CUDA_SUCCESS);  // not by this call

  // A handle of what is mapped may go first; what is retained lives on.
  CUmemGenericAllocationHandle physical = 0;
  CUmemGenericAllocationHandle retained = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemImportFromShareableHandle(&physical, Pointer(static_cast<CUdeviceptr>(descriptors[kPhysical])),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CHECK(cuMemAddressReserve(&address, 4 * kGranule, 0, 0, 0));
  CHECK(cuMemMap(address, 2 * kGranule, 0, physical, 0));
  CHECK(cuMemMap(address + 2 * kGranule, kGranule, kGranule, physical, 0));
  MakeAccessible(address, 2 * kGranule);
  CHECK(cuMemRetainAllocationHandle(&retained, Pointer(address)));
  CHECK(cuMemRelease(physical));

  cudaMemPool_t pools[2] = {};
  CUdeviceptr pooled[2] = {};
  CHECK(cudaMemPoolImportFromShareableHandle(&pools[0],
                                             Pointer(static_cast<CUdeviceptr>(descriptors[kRuntimePool])),
                                             cudaMemHandleTypePosixFileDescriptor, 0));
  CHECK(cuMemPoolImportFromShareableHandle(&pools[1],
                                           Pointer(static_cast<CUdeviceptr>(descriptors[kDriverPool])),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cudaMemPoolImportPointer(reinterpret_cast<void**>(&pooled[0]), pools[0], &parcel.runtime_pointer));
  CHECK(cuMemPoolImportPointer(&pooled[1], pools[1], &parcel.driver_pointer));
  void* none = nullptr;
  EXPECT(cudaMallocFromPoolAsync(&none, 1000, pools[0], stream) != cudaSuccess);

  cudaExternalMemory_t by_runtime = nullptr;
  CUexternalMemory by_driver = nullptr;
  const External externals[2] = {ImportByRuntime(descriptors[kRuntimeExternal], &by_runtime),
                                 ImportByDriver(descriptors[kDriverExternal], &by_driver)};
  CHECK(cudaMallocAsync(&own[1], 7 * kMiB, stream));
  CHECK(cudaMalloc(&own[2], 6 * kMiB));  // the highest level, with all of it mapped
  Meet(channel);

  for (int i = 0; i < 2; ++i) {
    Visit(opened[i], kMark[i]);
    Visit(pooled[i], kMark[2 + i]);
    Visit(externals[i].buffer, kMark[5]);
  }
  Visit(address, kMark[4]);
  CHECK(cudaIpcCloseMemHandle(Pointer(opened[0])));
  CHECK(cuIpcCloseMemHandle(opened[1]));
  EXPECT(cuIpcCloseMemHandle(opened[1]) != CUDA_SUCCESS);
  CHECK(cuMemUnmap(address, 2 * kGranule));
  CHECK(cuMemUnmap(address + 2 * kGranule, kGranule));
  CHECK(cuMemRelease(retained));
  CHECK(cuMemAddressFree(address, 4 * kGranule));
  CHECK(cudaFree(Pointer(pooled[0])));
  CHECK(cuMemFreeAsync(pooled[1], stream));
  CHECK(cudaStreamSynchronize(stream));
  for (cudaMemPool_t pool : pools) CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaFree(Pointer(externals[0].buffer)));
  CHECK(cuMemFree(externals[1].buffer));
  CHECK(cudaFreeMipmappedArray(reinterpret_cast<cudaMipmappedArray_t>(externals[0].levels)));
  CHECK(cuMipmappedArrayDestroy(externals[1].levels));
  CHECK(cudaDestroyExternalMemory(by_runtime));
  CHECK(cuDestroyExternalMemory(by_driver));
  for (const Descriptor descriptor : {kPhysical, kRuntimePool, kDriverPool}) close(descriptors[descriptor]);
  for (void* pointer : own) CHECK(cudaFree(pointer));
  Meet(channel);
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    Import(std::atoi(argv[1]));
    return 0;
  }
  int channels[2] = {};
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channels));
  const std::string number = std::to_string(channels[1]);
  std::vector<char> argument(number.begin(), number.end());
  argument.push_back('\0');
  char* arguments[] = {argv[0], argument.data(), nullptr};
  pid_t importer = 0;
  CHECK(posix_spawn(&importer, argv[0], nullptr, nullptr, arguments, environ));
  close(channels[1]);
  Export(channels[0]);
  int status = 0;
  EXPECT(waitpid(importer, &status, 0) == importer && status == 0);
  return 0;
}
