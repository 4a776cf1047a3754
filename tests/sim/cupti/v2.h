// CUPTI's declarations for several subscribers, which headers before 13.4 do not have all of.
//
// e2e.real_cupti holds them against each release's headers.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpusim::cupti {

// CUpti_SubscriberParams. In 13.0 and 13.1 it ends behind old_name_bytes.
struct SubscriberParams {
  size_t bytes;
  const char* name;
  char* old_name;
  size_t old_name_bytes;
  uint8_t allow_others;
  uint8_t padding[7];
};

using RequestV2 = void(CUPTIAPI*)(uint8_t** buffer, size_t* size, size_t* max_records, void* info);
using CompleteV2 = void(CUPTIAPI*)(uint8_t* buffer, size_t size, size_t valid_size, void* info);

enum AttributeV2 : int {
  kManySubscribersState = 12,
  kThreadIdTypeOfSubscriber = 21,
  kClockOfSubscriber = 22
};

}  // namespace gpusim::cupti
