#include "collector/cli/doctor/cupti_library.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "collector/cli/elf_facts.h"

namespace gpuprobe::cli::doctor {
namespace {

namespace fs = std::filesystem;

// In the probe's order.
constexpr std::array kSonames = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"};
// Releases that the probe does not look for.
constexpr std::array kOldSonames = {"libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
                                    "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2",
                                    "libcupti.so.11.1", "libcupti.so.11.0", "libcupti.so.10.2"};
constexpr size_t kMostCacheBytes = size_t{32} << 20;

// What cuptiGetVersion answers, before the numbers that can be read.
struct NumberedRelease {
  uint32_t version;
  const char* name;
};
constexpr NumberedRelease kReleases[] = {{18, "11.8 to 12.1"}, {20, "12.2"}, {21, "12.3"},
                                         {22, "12.4"},         {23, "12.5"}, {24, "12.6"},
                                         {26, "12.8"},         {27, "12.9"}, {28, "12.9 Update 1"}};
constexpr uint32_t kFirstReadable = 130000;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string Folder(const std::string& path) { return fs::path(path).parent_path().string(); }

int MajorOf(std::string_view file) {
  const size_t at = file.find(".so.");
  int major = 0;
  if (at == std::string_view::npos) return 0;
  std::from_chars(file.data() + at + std::strlen(".so."), file.data() + file.size(), major);
  return major;
}

// The loader's cache, /etc/ld.so.cache: the path of a library for this architecture.
std::string InLoaderCache(const std::string& soname) {
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr size_t kHeader = 48;
  constexpr size_t kEntry = 24;
#if defined(__aarch64__)
  constexpr uint32_t kKind = 0x0a00;
#else
  constexpr uint32_t kKind = 0x0300;
#endif
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  std::string cache(kMostCacheBytes, '\0');
  file.read(cache.data(), static_cast<std::streamsize>(cache.size()));
  cache.resize(static_cast<size_t>(file.gcount()));
  const size_t begin = cache.find(kMagic);
  if (begin == std::string::npos || cache.size() - begin < kHeader) return "";
  cache.erase(0, begin);
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    if (at + sizeof value <= cache.size()) std::memcpy(&value, cache.data() + at, sizeof value);
    return value;
  };
  const auto text = [&](size_t at) {
    if (at >= cache.size()) return std::string_view();
    return std::string_view(cache).substr(at, std::min(cache.find('\0', at), cache.size()) - at);
  };
  const size_t count = std::min<size_t>(number(kMagic.size()), (cache.size() - kHeader) / kEntry);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = kHeader + i * kEntry;
    if ((number(entry) & 0xff00) != kKind || text(number(entry + 4)) != soname) continue;
    return std::string(text(number(entry + 8)));
  }
  return "";
}

std::vector<std::string> PathsOf(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  if (found == variables.end()) return {};
  return absl::StrSplit(found->second, absl::ByAnyChar(":;"), absl::SkipEmpty());
}

// As the loader finds it for a program that opens it by this name.
std::string OnLoaderPath(const std::string& soname, const ProgramLibraries& program) {
  for (const std::string& folder : PathsOf(program.variables, "LD_LIBRARY_PATH")) {
    std::string path = absl::StrCat(folder, "/", soname);
    if (Exists(path)) return path;
  }
  if (std::string cached = InLoaderCache(soname); !cached.empty() && Exists(cached)) return cached;
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
    std::string path = absl::StrCat(folder, "/", soname);
    if (Exists(path)) return path;
  }
  return "";
}

// A library that the program names: its own search path counts, too.
std::string Needed(std::string_view prefix, const ProgramLibraries& program) {
  for (const std::string& soname : program.needed) {
    if (!soname.starts_with(prefix)) continue;
    const std::vector<std::string> folders = absl::StrSplit(program.search_path, ':', absl::SkipEmpty());
    for (const std::string& folder : folders) {
      std::string path = absl::StrCat(absl::StrReplaceAll(folder, {{"$ORIGIN", Folder(program.program)},
                                                                   {"${ORIGIN}", Folder(program.program)}}),
                                      "/", soname);
      if (Exists(path)) return path;
    }
    return OnLoaderPath(soname, program);
  }
  return "";
}

// Where the packages of a Python are.
std::vector<std::string> PackageFolders(const ProgramLibraries& program) {
  std::vector<std::string> folders = PathsOf(program.variables, "PYTHONPATH");
  std::error_code error;
  std::vector<std::string> prefixes = {Folder(Folder(program.program)),
                                       Folder(Folder(fs::canonical(program.program, error).string()))};
  if (const auto home = program.variables.find("HOME"); home != program.variables.end())
    prefixes.push_back(home->second + "/.local");
  for (const std::string& prefix : prefixes) {
    for (fs::directory_iterator it(prefix + "/lib", error), end; !error && it != end; it.increment(error)) {
      if (!it->path().filename().string().starts_with("python3")) continue;
      folders.push_back(it->path().string() + "/site-packages");
      folders.push_back(it->path().string() + "/dist-packages");
    }
  }
  return folders;
}

struct PythonPackages {
  bool torch = false;
  std::string cupti;
};

PythonPackages LookAtPackages(const ProgramLibraries& program) {
  PythonPackages found;
  for (const std::string& folder : PackageFolders(program)) {
    found.torch = found.torch || Exists(folder + "/torch/lib");
    for (const char* place : {"/nvidia/cu13/lib/", "/nvidia/cuda_cupti/lib/"}) {
      for (const char* soname : kSonames) {
        const std::string path = absl::StrCat(folder, place, soname);
        if (found.cupti.empty() && Exists(path)) found.cupti = path;
      }
    }
    // Wheels that bring their own copy put a hash behind its name.
    std::error_code error;
    for (fs::directory_iterator it(folder + "/torch/lib", error), end; !error && it != end;
         it.increment(error)) {
      if (found.cupti.empty() && it->path().filename().string().starts_with("libcupti"))
        found.cupti = it->path().string();
    }
  }
  return found;
}

// "12.4.127" of the wheel or the toolkit that a copy belongs to.
std::string PackageOf(const std::string& path) {
  std::error_code error;
  const std::string real = fs::canonical(path, error).string();
  if (error) return "";
  const std::string above = Folder(Folder(Folder(Folder(real))));  // site-packages/nvidia/cuda_cupti/lib/
  for (fs::directory_iterator it(above, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with("nvidia_cuda_cupti") || !name.ends_with(".dist-info")) continue;
    name.resize(name.size() - std::strlen(".dist-info"));
    return name.substr(name.find('-') + 1);
  }
  return "";
}

// The release without calling it: up to 13.2 the function is `movl $VERSION, (%rdi)` between a check and a
// return. Later ones ask the driver; what they export says what they are at least, as it does for the probe.
void ReadVersion(CuptiLibrary* library) {
  constexpr char kGetVersion[] = "cuptiGetVersion";
  constexpr char kNextRecord[] = "cuptiActivityGetNextRecord_v2";
  constexpr char kEnable[] = "cuptiActivityEnable_v2";
  const int fd = open(library->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  const std::map<std::string, uint64_t> symbols = FindSymbols(fd, {kGetVersion, kNextRecord, kEnable});
  const auto function = symbols.find(kGetVersion);
  if (function == symbols.end()) return;
#if defined(__x86_64__)
  constexpr std::string_view kMove = "\xc7\x07";
  char code[40] = {};
  const ssize_t n = pread(fd, code, sizeof(code), static_cast<off_t>(function->second));
  const std::string_view bytes(code, n > 0 ? static_cast<size_t>(n) : 0);
  uint32_t version = 0;
  const size_t at = bytes.find(kMove);
  if (at != std::string_view::npos && at + kMove.size() + sizeof version <= bytes.size()) {
    std::memcpy(&version, bytes.data() + at + kMove.size(), sizeof version);
    constexpr uint32_t kMostVersion = 1'000'000;
    if (version > 0 && version < kMostVersion) {
      library->version = version;
      return;
    }
  }
#endif
  if (!symbols.contains(kEnable)) return;
  library->version = symbols.contains(kNextRecord) ? 130300 : 130200;
  library->at_least = true;
}

// Beside the runtime that the program uses, then where toolkits are.
std::string BesideRuntime(const char* soname, const std::string& runtime) {
  std::vector<std::string> folders;
  if (!runtime.empty()) {
    for (const char* folder :
         {"/", "/../../cuda_cupti/lib/", "/../extras/CUPTI/lib64/", "/../../../extras/CUPTI/lib64/"})
      folders.push_back(absl::StrCat(Folder(runtime), folder));
  }
  folders.insert(folders.end(), {"/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"});
  for (const std::string& folder : folders) {
    if (Exists(folder + soname)) return folder + soname;
  }
  return "";
}

std::string FindSoname(const char* soname, const ProgramLibraries& program, const std::string& runtime,
                       std::string* origin) {
  *origin = "on the loader's path";
  if (std::string path = OnLoaderPath(soname, program); !path.empty()) return path;
  *origin = "of the CUDA toolkit";
  return BesideRuntime(soname, runtime);
}

}  // namespace

CuptiLibrary DescribeCupti(const std::string& path, const std::string& origin) {
  CuptiLibrary library;
  library.path = path;
  library.origin = origin;
  library.major = MajorOf(fs::path(path).filename().string());
  library.package = PackageOf(path);
  ReadVersion(&library);
  return library;
}

CuptiFacts FindCupti(const ProgramLibraries& program, int driver_cuda) {
  if (std::string path = Needed("libcupti.so", program); !path.empty())
    return {.library = DescribeCupti(path, "linked by the command"), .unsupported = std::nullopt};
  const PythonPackages packages = program.is_python ? LookAtPackages(program) : PythonPackages();
  if (packages.torch && !packages.cupti.empty())
    return {.library = DescribeCupti(packages.cupti, "PyTorch loads it"), .unsupported = std::nullopt};
  const std::string runtime = Needed("libcudart.so", program);
  const int runtime_cuda = MajorOf(fs::path(runtime).filename().string());
  CuptiFacts facts;
  std::string origin;
  for (const bool the_programs : {true, false}) {
    for (const char* soname : kSonames) {
      if (the_programs != (MajorOf(soname) == runtime_cuda)) continue;
      const std::string path = FindSoname(soname, program, runtime, &origin);
      if (path.empty()) continue;
      if (driver_cuda != 0 && MajorOf(soname) > driver_cuda) {
        if (!facts.unsupported.has_value()) facts.unsupported = DescribeCupti(path, origin);
        continue;
      }
      return {.library = DescribeCupti(path, origin), .unsupported = std::nullopt};
    }
  }
  if (!packages.cupti.empty())
    return {.library = DescribeCupti(packages.cupti, "in the packages of the command's Python"),
            .unsupported = std::nullopt};
  for (const char* soname : kOldSonames) {
    if (facts.unsupported.has_value()) break;
    if (const std::string path = FindSoname(soname, program, runtime, &origin); !path.empty())
      facts.unsupported = DescribeCupti(path, origin);
  }
  return facts;
}

std::string CuptiRelease(uint32_t version) {
  constexpr uint32_t kMajor = 10'000;
  constexpr uint32_t kMinor = 100;
  if (version >= kFirstReadable) {
    const uint32_t update = version % kMinor;
    return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor,
                        update == 0 ? "" : absl::StrCat(" Update ", update));
  }
  for (const NumberedRelease& release : kReleases) {
    if (release.version == version) return release.name;
  }
  return version > 0 && version < kReleases[0].version ? "before 11.8" : "";
}

}  // namespace gpuprobe::cli::doctor
