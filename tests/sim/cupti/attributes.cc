#include "tests/sim/cupti/attributes.h"

#include <cstring>

namespace gpusim::cupti {
namespace {

struct Attribute {
  int number;
  size_t size;
  uint64_t initial;
};

// [documented] cupti_activity.h (13.0), CUpti_ActivityAttribute: sizes and defaults.
constexpr Attribute kAttributes[] = {
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, sizeof(size_t), 3200000},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP, sizeof(size_t), 8U << 20},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, sizeof(size_t), 250},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE, sizeof(size_t), 25000},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT, sizeof(size_t), 250},
    {CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, sizeof(uint8_t), 0},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, sizeof(size_t), 3},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE, sizeof(size_t), 3},
    {CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, sizeof(uint8_t), 0},
    {CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, sizeof(uint8_t), 1},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS, sizeof(size_t), 16U << 20},
};

const Attribute* FindAttribute(int number) {
  for (const Attribute& attribute : kAttributes) {
    if (attribute.number == number) {
      return &attribute;
    }
  }
  return nullptr;
}

}  // namespace

CUptiResult Attributes::Set(int attribute, size_t* size, const void* value) {
  const Attribute* known = FindAttribute(attribute);
  if (known == nullptr || size == nullptr || value == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (*size < known->size) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  const auto* bytes = static_cast<const uint8_t*>(value);
  const std::scoped_lock lock(mutex_);
  set_[attribute].assign(bytes, bytes + known->size);
  return CUPTI_SUCCESS;
}

CUptiResult Attributes::Get(int attribute, size_t* size, void* value) {
  const Attribute* known = FindAttribute(attribute);
  if (known == nullptr || size == nullptr || value == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (*size < known->size) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  const std::scoped_lock lock(mutex_);
  const auto set = set_.find(attribute);
  std::memcpy(value, set == set_.end() ? static_cast<const void*>(&known->initial) : set->second.data(),
              known->size);
  *size = known->size;
  return CUPTI_SUCCESS;
}

}  // namespace gpusim::cupti
