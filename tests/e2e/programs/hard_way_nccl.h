// How a program reaches NCCL: by the symbols, by their other names (pnccl*), through a table that static
// relocations fill, or by dlsym.
//
// The scenarios say NCCL(AllReduce)(...) and are compiled once for each way.
// HARD_WAY_TABLE, HARD_WAY_DLSYM and HARD_WAY_PROFILING_NAMES choose; without any the symbols are called.
#pragma once

#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

// clang-format off
#define HARD_WAY_FUNCTIONS(DO) \
  DO(GetVersion) DO(GetUniqueId) DO(GetErrorString) DO(CommInitRank) DO(CommInitRankConfig) DO(CommInitAll) DO(CommFinalize) \
  DO(CommDestroy) DO(CommGetAsyncError) DO(GroupStart) DO(GroupEnd) \
  DO(AllReduce) DO(AllGather) DO(ReduceScatter) DO(Broadcast) DO(Bcast) DO(Reduce) DO(AlltoAll) DO(Gather) \
  DO(Scatter) DO(Send) DO(Recv)
// clang-format on

namespace hard_way {

// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member
#define HARD_WAY_MEMBER(name) decltype(&nccl##name) name;
struct NcclTable {
  HARD_WAY_FUNCTIONS(HARD_WAY_MEMBER)
};
#undef HARD_WAY_MEMBER

// The functions of one copy of NCCL, looked up by name as JAX does.
inline NcclTable LookUp(void* library) {
  NcclTable table = {};
  const auto find = [library](const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    return found;
  };
#define HARD_WAY_FIND(name) table.name = reinterpret_cast<decltype(table.name)>(find("nccl" #name));
  HARD_WAY_FUNCTIONS(HARD_WAY_FIND)
#undef HARD_WAY_FIND
  return table;
}

inline void* OpenNccl(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return library;
}

#if defined(HARD_WAY_DLSYM)
inline const NcclTable& Table() {
  static const NcclTable kTable = LookUp(OpenNccl("libnccl.so.2"));
  return kTable;
}
#define NCCL(name) ::hard_way::Table().name
#elif defined(HARD_WAY_TABLE)
#define HARD_WAY_ADDRESS(name) &nccl##name,
// Not const: the compiler must call what is in the table, not what it knows to have been put there.
inline NcclTable nccl_table = {HARD_WAY_FUNCTIONS(HARD_WAY_ADDRESS)};
#undef HARD_WAY_ADDRESS
#define NCCL(name) ::hard_way::nccl_table.name
#elif defined(HARD_WAY_PROFILING_NAMES)
#define NCCL(name) pnccl##name
#else
#define NCCL(name) nccl##name
#endif

}  // namespace hard_way
