#include "tests/sim/cupti/names.h"

#include <cupti.h>

#include <array>
#include <string_view>

namespace gpusim::cupti {
namespace {

struct Entry {
  uint32_t id;
  const char* name;
};

// clang-format off
constexpr Entry kDriverEntries[] = {
#include "driver_cbids.inc"
};
constexpr Entry kRuntimeEntries[] = {
#include "runtime_cbids.inc"
};
constexpr Entry kResultEntries[] = {
#include "results.inc"
};
// clang-format on

template <size_t kSize, size_t kEntries>
constexpr std::array<const char*, kSize> ById(const Entry (&entries)[kEntries]) {
  std::array<const char*, kSize> table{};
  for (const Entry& entry : entries) {
    if (entry.id < kSize) {
      table[entry.id] = entry.name;
    }
  }
  return table;
}

// [observed] CUPTI 13.0.1 without a GPU: the names of all callbacks and results (names_test.cc).
constexpr auto kDriverNames = ById<CUPTI_DRIVER_TRACE_CBID_SIZE>(kDriverEntries);
constexpr auto kRuntimeNames = ById<CUPTI_RUNTIME_TRACE_CBID_SIZE>(kRuntimeEntries);

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

DriverCall Classify(std::string_view name) {
  if (StartsWith(name, "cuLaunchHostFunc")) {
    return DriverCall::kOther;
  }
  if (StartsWith(name, "cuLaunch")) {
    return DriverCall::kKernelLaunch;
  }
  if (StartsWith(name, "cuStreamSynchronize")) {
    return DriverCall::kStreamSynchronize;
  }
  if (StartsWith(name, "cuCtxSynchronize")) {
    return DriverCall::kContextSynchronize;
  }
  if (StartsWith(name, "cuMem") || StartsWith(name, "cuGraphLaunch") ||
      StartsWith(name, "cuEventSynchronize") || StartsWith(name, "cuStreamWaitEvent")) {
    return DriverCall::kDeviceWork;
  }
  return DriverCall::kOther;
}

}  // namespace

const char* CallbackName(int domain, uint32_t cbid) {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < kDriverNames.size()) {
    return kDriverNames[cbid];
  }
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid < kRuntimeNames.size()) {
    return kRuntimeNames[cbid];
  }
  return nullptr;
}

uint32_t CallbackCount(int domain) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      return CUPTI_DRIVER_TRACE_CBID_SIZE;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
      return CUPTI_RUNTIME_TRACE_CBID_SIZE;
    case CUPTI_CB_DOMAIN_RESOURCE:
      return CUPTI_CBID_RESOURCE_SIZE;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
      return CUPTI_CBID_SYNCHRONIZE_SIZE;
    case CUPTI_CB_DOMAIN_NVTX:
      return CUPTI_CBID_NVTX_SIZE;
    case CUPTI_CB_DOMAIN_STATE:
      return CUPTI_CBID_STATE_SIZE;
    default:
      return 0;
  }
}

DriverCall KindOfDriverCall(uint32_t cbid) {
  static const auto kKinds = [] {
    std::array<DriverCall, kDriverNames.size()> table{};
    for (size_t id = 0; id < table.size(); ++id) {
      table[id] = kDriverNames[id] == nullptr ? DriverCall::kOther : Classify(kDriverNames[id]);
    }
    return table;
  }();
  return cbid < kKinds.size() ? kKinds[cbid] : DriverCall::kOther;
}

const char* ResultName(int result) {
  // The real library has no string for these two.
  if (result == CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED || result == CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE) {
    return nullptr;
  }
  for (const Entry& entry : kResultEntries) {
    if (entry.id == static_cast<uint32_t>(result)) {
      return entry.name;
    }
  }
  return nullptr;
}

const char* ResultMessage(int result) {
  switch (result) {
    case CUPTI_ERROR_INVALID_DEVICE:
      return "The device does not correspond to a valid CUDA device.\n";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "Profiling on virtualized GPU is not allowed by hypervisor.\n";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "Profiling and tracing are not allowed when confidential computing mode is enabled.\n";
    default:
      return ResultName(result);
  }
}

}  // namespace gpusim::cupti
