#include "injector/sampling/interpreter_search.h"

#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "injector/base/loaded_objects.h"
#include "injector/base/own_memory.h"
#include "injector/base/text.h"

namespace gpuprobe::injector {

// Inside the linker's lock.
struct ObjectList {
  static constexpr int kMostParts = 32;

  InterpreterSearch& search;
  bool changed = false;

  static int Visit(dl_phdr_info* info, size_t size, void* data) noexcept {
    return static_cast<ObjectList*>(data)->Add(*info, size);
  }

  int Add(const dl_phdr_info& info, size_t size) noexcept {
    if (!changed) {
      if (size < offsetof(dl_phdr_info, dlpi_adds) + sizeof(info.dlpi_adds)) return 1;
      if (info.dlpi_adds == search.loaded_) return 1;
      search.loaded_ = info.dlpi_adds;
      search.count_ = 0;
      search.named_ = 0;
      changed = true;
    }
    if (search.count_ == InterpreterSearch::kMostObjects) return 1;
    // A program may have taken the page away that they are in.
    ElfW(Phdr) parts[kMostParts];
    const int count = std::min<int>(info.dlpi_phnum, kMostParts);
    if (ReadMemory(info.dlpi_phdr, parts, static_cast<size_t>(count) * sizeof(parts[0])) != ReadResult::kRead)
      return 0;
    for (int i = 0; i < count; ++i) {
      const ElfW(Phdr)& part = parts[i];
      if (part.p_type != PT_LOAD || part.p_offset != 0) continue;
      Name(info.dlpi_name);
      search.bases_[search.count_++] = info.dlpi_addr + part.p_vaddr;
      break;
    }
    return 0;
  }

  void Name(const char* path) const noexcept {
    if (path == nullptr || search.named_ == InterpreterSearch::kMostNamed) return;
    const char* slash = std::strrchr(path, '/');
    const char* file = slash == nullptr ? path : slash + 1;
    const size_t length = strnlen(file, InterpreterSearch::kNameBytes);
    if (length == InterpreterSearch::kNameBytes || std::strstr(file, "python") == nullptr) return;
    std::memcpy(search.names_[search.named_], file, length + 1);
    search.named_object_[search.named_++] = search.count_;
  }
};

bool InterpreterSearch::Look(stacks::PythonProcess* python, stacks::Unreadable* result) noexcept {
  ObjectList list{*this};
  if (!VisitLoadedObjects(ObjectList::Visit, &list)) return false;
  if (!list.changed) return true;
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
  size_t named = 0;
  for (size_t i = 0; i < count_; ++i) {
    // The first object is the program, which the list does not name.
    std::string_view path(program, i == 0 && length > 0 ? static_cast<size_t>(length) : 0);
    if (named < named_ && named_object_[named] == i) path = names_[named++];
    *result = python->OpenAt(bases_[i], path);
    if (*result != stacks::Unreadable::kNoInterpreter) return true;
  }
  *result = stacks::Unreadable::kNoInterpreter;
  return true;
}

}  // namespace gpuprobe::injector
