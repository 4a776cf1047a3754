#include "injector/capture/cupti/function_table.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "injector/base/loaded_objects.h"
#include "injector/base/text.h"

namespace gpuprobe::injector {

namespace {

constexpr const char* kSonames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"};

struct LoadedPaths {
  TextBuffer<PATH_MAX> cupti;
  TextBuffer<PATH_MAX> driver;
  TextBuffer<PATH_MAX> runtime;
};

bool FileIs(const char* path, const char* prefix) noexcept {
  const char* slash = std::strrchr(path, '/');
  return std::strncmp(slash == nullptr ? path : slash + 1, prefix, std::strlen(prefix)) == 0;
}

// Called by dl_iterate_phdr with the loader's lock held: only copies.
int NotePath(dl_phdr_info* info, size_t /*size*/, void* data) noexcept {
  auto* paths = static_cast<LoadedPaths*>(data);
  const char* path = info->dlpi_name;
  if (path == nullptr || *path == '\0') return 0;
  // Wheels may put a hash behind the name.
  if (paths->cupti.empty() && FileIs(path, "libcupti")) paths->cupti.Add(path);
  if (paths->driver.empty() && FileIs(path, "libcuda.so")) paths->driver.Add(path);
  if (paths->runtime.empty() && FileIs(path, "libcudart")) paths->runtime.Add(path);
  return 0;
}

void* OpenLoaded(const LoadedPaths& paths) noexcept {
  for (const char* soname : kSonames) {
    if (void* handle = dlopen(soname, RTLD_NOW | RTLD_NOLOAD)) return handle;
  }
  return paths.cupti.empty() ? nullptr : dlopen(paths.cupti.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

// The loader's own search, then where toolkits and wheels put it relative to the runtime that the program
// uses.
void* OpenSoname(const char* soname, const LoadedPaths& paths) noexcept {
  if (void* handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL)) return handle;
  static constexpr const char* kBesideRuntime[] = {"", "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/",
                                                   "../../../extras/CUPTI/lib64/"};
  const std::string_view runtime = paths.runtime.view();
  const size_t slash = runtime.rfind('/');
  if (slash != std::string_view::npos) {
    for (const char* folder : kBesideRuntime) {
      TextBuffer<PATH_MAX> path;
      path.Add({runtime.data(), slash + 1}).Add(folder).Add(soname);
      if (void* handle = path.cut() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  for (const char* folder : {"/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"}) {
    TextBuffer<PATH_MAX> path;
    path.Add(folder).Add(soname);
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return nullptr;
}

int MajorOf(const char* soname) noexcept { return std::atoi(std::strstr(soname, ".so.") + 4); }

// The program's CUDA first: its CUPTI works with a newer driver, too. Then the driver's, and older ones.
void* LoadForDriver(const LoadedPaths& paths) noexcept {
  char real[PATH_MAX];
  int driver = 0;
  if (!paths.driver.empty() && realpath(paths.driver.c_str(), real) != nullptr)
    driver = CudaMajorOfDriver(real);
  const int runtime = paths.runtime.empty() ? 0 : CudaMajorOfRuntime(paths.runtime.c_str());
  for (const bool the_programs : {true, false}) {
    for (const char* soname : kSonames) {
      if (the_programs != (MajorOf(soname) == runtime)) continue;
      if (driver != 0 && MajorOf(soname) > driver) continue;
      if (void* handle = OpenSoname(soname, paths)) return handle;
    }
  }
  return nullptr;
}

// From 13.3 on CUPTI does not even report its version before it has found a driver. Its exports give a lower
// bound of the version, which is the safe side.
uint32_t LeastVersion(const CuptiApi& api) noexcept {
  if (api.ActivityGetNextRecord_v2 != nullptr) return 130300;
  return api.ActivityEnable_v2 != nullptr ? 130200 : 0;
}

}  // namespace

// 520 came with 11.8, 525 with 12.0, 580 with 13.0.
int CudaMajorOfDriver(const char* libcuda_path) noexcept {
  const char* version = std::strstr(libcuda_path, "libcuda.so.");
  if (version == nullptr) return 0;
  const int branch = std::atoi(version + std::strlen("libcuda.so."));
  if (branch >= 580) return 13;
  if (branch >= 525) return 12;
  return branch >= 450 ? 11 : 0;
}

int CudaMajorOfRuntime(const char* libcudart_path) noexcept {
  const char* name = std::strstr(libcudart_path, "libcudart");
  const char* version = name == nullptr ? nullptr : std::strstr(name, ".so.");
  return version == nullptr ? 0 : std::atoi(version + std::strlen(".so."));
}

bool BindCupti(CuptiApi* api) noexcept {
  LoadedPaths paths;
  AlwaysVisitLoadedObjects(NotePath, &paths);
  void* handle = OpenLoaded(paths);
  if (handle == nullptr) handle = LoadForDriver(paths);
  if (handle == nullptr) return false;
  api->library = handle;
#define GPUPROBE_BIND(name) api->name = reinterpret_cast<decltype(api->name)>(dlsym(handle, "cupti" #name));
  GPUPROBE_CUPTI_FUNCTIONS(GPUPROBE_BIND)
#undef GPUPROBE_BIND
#define GPUPROBE_BIND(name, parameters) \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(handle, "cupti" #name));
  GPUPROBE_CUPTI_V2_FUNCTIONS(GPUPROBE_BIND)
#undef GPUPROBE_BIND
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr) {
    const size_t length = strnlen(map->l_name, sizeof(api->path) - 1);
    std::memcpy(api->path, map->l_name, length);
    api->path[length] = '\0';
  }
  if (api->GetVersion == nullptr) return false;
  if (api->GetVersion(&api->version) != CUPTI_SUCCESS) api->version = LeastVersion(*api);
  if (api->version == 0) return false;
  return api->Subscribe != nullptr && api->EnableCallback != nullptr &&
         api->ActivityRegisterCallbacks != nullptr && api->ActivityEnable != nullptr &&
         api->ActivityFlushAll != nullptr && api->ActivityGetNextRecord != nullptr;
}

}  // namespace gpuprobe::injector
