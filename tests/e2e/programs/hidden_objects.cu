// A program that takes a part of a loaded library away for a while: unmapped to save memory, or protected.
//
// usage: hidden_objects PART HOW LIBRARY   PART: headers, dynamic (section), tables (the first segment),
// slots
//                                          HOW: unmapped, protected, readable (slots that may not be written)
// While the part is away the program launches kernels and looks a function up, for a second.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr uintptr_t kPage = 4096;

__global__ void Add(int* sum) {
  if (threadIdx.x == 0) *sum += 1;
}

struct Area {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  int protection = PROT_READ;
};

Area Pages(uintptr_t begin, uintptr_t end, int protection) {
  return {begin & ~(kPage - 1), (end + kPage - 1) & ~(kPage - 1), protection};
}

struct Wanted {
  const char* part;
  const char* library;
  Area area;
};

Area Choose(const dl_phdr_info& info, const char* part) {
  const ElfW(Dyn)* dynamic = nullptr;
  Area first;
  Area area;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const uintptr_t at = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && first.begin == 0) first = Pages(at, at + header.p_memsz, PROT_READ);
    if (header.p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(at);
      if (std::strcmp(part, "dynamic") == 0) area = Pages(at, at + header.p_memsz, PROT_READ);
    }
  }
  if (std::strcmp(part, "headers") == 0) area = Pages(first.begin, first.begin + kPage, PROT_READ);
  if (std::strcmp(part, "tables") == 0) area = first;
  for (; std::strcmp(part, "slots") == 0 && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_PLTGOT)
      area = Pages(dynamic->d_un.d_ptr, dynamic->d_un.d_ptr + kPage, PROT_READ | PROT_WRITE);
  }
  return area;
}

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int* sum = nullptr;
  if (cudaMalloc(&sum, sizeof(*sum)) != cudaSuccess) return 1;
  void* library = dlopen(argv[3], RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "hidden_objects: %s\n", dlerror());
    return 1;
  }
  Wanted wanted{argv[1], argv[3], {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* search = static_cast<Wanted*>(data);
        if (std::strcmp(info->dlpi_name, search->library) == 0) search->area = Choose(*info, search->part);
        return 0;
      },
      &wanted);
  const Area area = wanted.area;
  const size_t bytes = area.end - area.begin;
  if (bytes == 0) return 1;
  std::vector<char> copy(bytes);
  std::memcpy(copy.data(), At(area.begin), bytes);
  const bool unmapped = std::strcmp(argv[2], "unmapped") == 0;
  if (unmapped) {
    munmap(At(area.begin), bytes);
  } else {
    mprotect(At(area.begin), bytes, std::strcmp(argv[2], "readable") == 0 ? PROT_READ : PROT_NONE);
  }
  for (int i = 0; i < 50; ++i) {
    Add<<<1, 32>>>(sum);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    if (dlsym(RTLD_DEFAULT, "there_is_no_such_function") != nullptr) return 1;
    usleep(20'000);
  }
  if (unmapped) {
    mmap(At(area.begin), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
         0);
    std::memcpy(At(area.begin), copy.data(), bytes);
  }
  mprotect(At(area.begin), bytes, area.protection);
  std::printf("done\n");
  return 0;
}
