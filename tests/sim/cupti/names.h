// Names and numbers of the API functions, taken from the toolkit's own enumerations when the build is
// configured.
#pragma once

#include <cstdint>

namespace gpusim::cupti {

// The name that cuptiGetCallbackName gives, or null for a domain without names or an id outside of it.
const char* CallbackName(int domain, uint32_t cbid);
// One more than the largest id of the domain; 0 for a domain that does not exist.
uint32_t CallbackCount(int domain);

// What a driver function does, for those that matter to the records.
enum class DriverCall : uint8_t {
  kOther,
  kKernelLaunch,
  kDeviceWork,
  kStreamSynchronize,
  kContextSynchronize
};
DriverCall KindOfDriverCall(uint32_t cbid);

const char* ResultName(int result);     // "CUPTI_ERROR_..." or null
const char* ResultMessage(int result);  // the longer text, where there is one

}  // namespace gpusim::cupti
