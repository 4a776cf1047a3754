// The attributes of the activity API: their sizes, what they are at first, and what a tool sets them to.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace gpusim::cupti {

class Attributes {
 public:
  // By number; the value's size comes with it.
  CUptiResult Set(int attribute, size_t* size, const void* value);
  CUptiResult Get(int attribute, size_t* size, void* value);

 private:
  std::mutex mutex_;
  std::map<int, std::vector<uint8_t>> set_;
};

}  // namespace gpusim::cupti
