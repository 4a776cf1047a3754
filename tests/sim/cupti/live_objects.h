// The contexts and streams that exist, and the records about them and about devices.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "tests/sim/cupti/buffers.h"

namespace gpusim::cupti {

class LiveObjects {
 public:
  LiveObjects(Buffers* buffers, uint32_t api_version) : buffers_(buffers), api_version_(api_version) {}

  // A record for each object of the kind: device, context or stream.
  void Dump(uint32_t kind);

  // `recorded`: the object's kind is enabled.
  void ContextCreated(void* context, bool recorded);
  void ContextDestroyed(void* context);
  void StreamCreated(void* context, void* stream, uint32_t correlation, bool recorded);
  void StreamDestroyed(void* stream);

 private:
  struct LiveStream {
    void* context = nullptr;
    uint32_t context_uid = 0;
    uint32_t stream_id = 0;
  };
  void AddContext(void* context, uint32_t uid);

  Buffers* const buffers_;
  const uint32_t api_version_;
  std::mutex mutex_;
  std::unordered_map<void*, uint32_t> contexts_;  // to uid
  std::unordered_map<void*, LiveStream> streams_;
};

}  // namespace gpusim::cupti
