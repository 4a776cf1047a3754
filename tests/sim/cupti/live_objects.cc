#include "tests/sim/cupti/live_objects.h"

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/layout.h"

namespace gpusim::cupti {

void LiveObjects::AddContext(void* context, uint32_t uid) {
  uint32_t device = 0;
  uint32_t null_stream = 0;
  DeviceOfContext(context, &device);
  StreamIdOf(context, nullptr, false, &null_stream);
  buffers_->Add(0, ContextRecord(uid, device, null_stream, api_version_));
}

// [documented] cupti_activity.h, cuptiActivityEnableAndDump: records of what exists already, for devices,
// contexts and streams.
void LiveObjects::Dump(uint32_t kind) {
  if (kind == CUPTI_ACTIVITY_KIND_DEVICE && DriverIsUp()) {
    for (uint32_t device = 0; device < DeviceCount(); ++device) {
      buffers_->Add(0, DeviceRecord(FactsOfDevice(device), api_version_));
    }
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
    for (const auto& [context, uid] : contexts_) AddContext(context, uid);
  } else if (kind == CUPTI_ACTIVITY_KIND_STREAM) {
    for (const auto& [stream, live] : streams_) {
      buffers_->Add(
          0, StreamRecord(live.context_uid, live.stream_id, 0, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, 0));
    }
  }
}

void LiveObjects::ContextCreated(void* context, bool recorded) {
  const uint32_t uid = ContextUid(context);
  {
    const std::scoped_lock lock(mutex_);
    contexts_[context] = uid;
  }
  if (recorded) AddContext(context, uid);
}

void LiveObjects::ContextDestroyed(void* context) {
  const std::scoped_lock lock(mutex_);
  contexts_.erase(context);
  std::erase_if(streams_, [context](const auto& entry) { return entry.second.context == context; });
}

void LiveObjects::StreamCreated(void* context, void* stream, uint32_t correlation, bool recorded) {
  LiveStream live{context, ContextUid(context), 0};
  StreamIdOf(context, stream, false, &live.stream_id);
  {
    const std::scoped_lock lock(mutex_);
    streams_[stream] = live;
  }
  if (recorded) {
    buffers_->Add(0, StreamRecord(live.context_uid, live.stream_id, 0,
                                  CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, correlation));
  }
}

void LiveObjects::StreamDestroyed(void* stream) {
  const std::scoped_lock lock(mutex_);
  streams_.erase(stream);
}

}  // namespace gpusim::cupti
