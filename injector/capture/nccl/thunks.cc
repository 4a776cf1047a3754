#include "injector/capture/nccl/thunks.h"

#include <utility>

#include "injector/capture/nccl/wrappers.h"

namespace gpuprobe::injector::nccl {

namespace {

template <int kWay>
void* ThunkOf(size_t index) noexcept {
  switch (static_cast<EntryPoint>(index)) {
#define NCCL_ENTRY(scope, name, params, args, facts) \
  case EntryPoint::k##name:                          \
    return reinterpret_cast<void*>(&Wrappers<kWay>::name);
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
    case EntryPoint::kCount:
      break;
  }
  return nullptr;
}

template <size_t... kIndexes>
void* Select(int way, EntryPoint entry_point, std::index_sequence<kIndexes...>) noexcept {
  void* found = nullptr;
  ((way == kFirstProviderWay + static_cast<int>(kIndexes)
        ? void(found =
                   ThunkOf<kFirstProviderWay + static_cast<int>(kIndexes)>(static_cast<size_t>(entry_point)))
        : void()),
   ...);
  return found;
}

}  // namespace

void* Thunk(int way, EntryPoint entry_point) noexcept {
  return Select(way, entry_point, std::make_index_sequence<kMaxProviders>());
}

}  // namespace gpuprobe::injector::nccl
