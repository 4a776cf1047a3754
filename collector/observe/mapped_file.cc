#include "collector/observe/mapped_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gpuprobe::observe {
namespace {

constexpr size_t kPage = 4096;

// It holds the header, most often the build id, and differs between builds.
bool HasFirstPage(int file, const std::vector<char>& page) {
  std::vector<char> there(page.size());
  struct stat status {};
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
         pread(file, there.data(), there.size(), 0) == static_cast<ssize_t>(there.size()) && there == page;
}

int OpenIfSame(const std::string& path, const std::vector<char>& page) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0 || HasFirstPage(file, page)) return file;
  close(file);
  return -1;
}

bool CopyPart(const stacks::ProcessMemory& memory, const MappedPart& part, int to) {
  std::vector<char> piece(size_t{256} << 10);
  for (uint64_t at = part.begin; at < part.end;) {
    const size_t got = memory.ReadSome(at, piece.data(), std::min<uint64_t>(piece.size(), part.end - at));
    if (got == 0) return false;
    const uint64_t offset = part.offset + (at - part.begin);
    if (pwrite(to, piece.data(), got, static_cast<off_t>(offset)) != static_cast<ssize_t>(got)) return false;
    at += got;
  }
  return true;
}

// The code, its unwind information and the exported symbols are in memory; the table of sections is not.
int CopyOf(const stacks::ProcessMemory& memory, const MappedObject& object) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  uint64_t bytes = 0;
  for (const MappedPart& part : object.parts) bytes += part.end - part.begin;
  const int file = bytes > kMostBytes ? -1 : memfd_create("gpuprobe-object", MFD_CLOEXEC);
  if (file < 0) return -1;
  for (const MappedPart& part : object.parts) {
    if (!part.writable && !CopyPart(memory, part, file)) {
      close(file);
      return -1;
    }
  }
  Elf64_Ehdr header{};
  if (object.path != kVdso && pread(file, &header, sizeof header, 0) == sizeof header) {
    header.e_shoff = 0;
    header.e_shnum = 0;
    header.e_shstrndx = 0;
    if (pwrite(file, &header, sizeof header, 0) != sizeof header) {
      close(file);
      return -1;
    }
  }
  return file;
}

}  // namespace

OpenedObject OpenMapped(const stacks::ProcessMemory& memory, const MappedObject& object) {
  const MappedPart& first = object.parts.front();
  std::vector<char> page(std::min<uint64_t>(kPage, first.end - first.begin));
  if (!memory.Read(first.begin, page.data(), page.size()) || page.size() < sizeof(Elf64_Ehdr) ||
      std::memcmp(page.data(), ELFMAG, SELFMAG) != 0) {
    return {};
  }
  if (object.path.front() == '/') {
    const std::string folder = absl::StrCat("/proc/", memory.pid());
    for (const std::string& path : {object.path, absl::StrCat(folder, "/root", object.path),
                                    absl::StrFormat("%s/map_files/%x-%x", folder, first.begin, first.end)}) {
      const int file = OpenIfSame(path, page);
      if (file >= 0) return {.file = file, .path = path};
    }
  }
  return {.file = CopyOf(memory, object), .path = ""};
}

}  // namespace gpuprobe::observe
