// The part of Perfetto's published trace schema that we write: field numbers and values (perfetto.protos,
// trace_packet.proto and track_event/*.proto).
#pragma once

#include "protozero/types.hpp"

namespace gpuprobe::timeline::perfetto {

using Tag = protozero::pbf_tag_type;

namespace trace {
inline constexpr Tag kPacket = 1;
}

namespace packet {
inline constexpr Tag kClockSnapshot = 6;
inline constexpr Tag kTimestamp = 8;
inline constexpr Tag kTrustedPacketSequenceId = 10;
inline constexpr Tag kTrackEvent = 11;
inline constexpr Tag kInternedData = 12;
inline constexpr Tag kSequenceFlags = 13;
inline constexpr Tag kCompressedPackets = 50;
inline constexpr Tag kTracePacketDefaults = 59;
inline constexpr Tag kTrackDescriptor = 60;
inline constexpr Tag kFirstPacketOnSequence = 87;
inline constexpr uint32_t kIncrementalStateCleared = 1;
inline constexpr uint32_t kNeedsIncrementalState = 2;
}  // namespace packet

namespace clock_snapshot {
inline constexpr Tag kClocks = 1;
inline constexpr Tag kPrimaryTraceClock = 2;
inline constexpr Tag kClockId = 1;
inline constexpr Tag kClockTimestamp = 2;
inline constexpr uint32_t kRealtime = 1;
inline constexpr uint32_t kBoottime = 6;
}  // namespace clock_snapshot

namespace packet_defaults {
inline constexpr Tag kTimestampClockId = 58;
}

namespace track_event {
inline constexpr Tag kCategoryIids = 3;
inline constexpr Tag kDebugAnnotations = 4;
inline constexpr Tag kType = 9;
inline constexpr Tag kNameIid = 10;
inline constexpr Tag kTrackUuid = 11;
inline constexpr Tag kCounterValue = 30;
inline constexpr Tag kDoubleCounterValue = 44;
inline constexpr Tag kFlowIds = 47;
inline constexpr Tag kTerminatingFlowIds = 48;
inline constexpr int32_t kSliceBegin = 1;
inline constexpr int32_t kSliceEnd = 2;
inline constexpr int32_t kInstant = 3;
inline constexpr int32_t kCounter = 4;
}  // namespace track_event

namespace debug_annotation {
inline constexpr Tag kNameIid = 1;
inline constexpr Tag kUintValue = 3;
inline constexpr Tag kIntValue = 4;
inline constexpr Tag kDoubleValue = 5;
inline constexpr Tag kStringValueIid = 17;
}  // namespace debug_annotation

namespace interned_data {
inline constexpr Tag kEventCategories = 1;
inline constexpr Tag kEventNames = 2;
inline constexpr Tag kDebugAnnotationNames = 3;
inline constexpr Tag kDebugAnnotationStringValues = 29;
// For each entry.
inline constexpr Tag kIid = 1;
inline constexpr Tag kText = 2;
}  // namespace interned_data

namespace track_descriptor {
inline constexpr Tag kUuid = 1;
inline constexpr Tag kName = 2;
inline constexpr Tag kProcess = 3;
inline constexpr Tag kThread = 4;
inline constexpr Tag kParentUuid = 5;
inline constexpr Tag kCounter = 8;
inline constexpr Tag kChildOrdering = 11;
inline constexpr Tag kSiblingOrderRank = 12;
inline constexpr int32_t kExplicitOrder = 3;
}  // namespace track_descriptor

namespace process_descriptor {
inline constexpr Tag kPid = 1;
inline constexpr Tag kLegacySortIndex = 3;
inline constexpr Tag kProcessName = 6;
inline constexpr Tag kProcessLabels = 8;
}  // namespace process_descriptor

namespace thread_descriptor {
inline constexpr Tag kPid = 1;
inline constexpr Tag kTid = 2;
inline constexpr Tag kThreadName = 5;
}  // namespace thread_descriptor

namespace counter_descriptor {
inline constexpr Tag kUnit = 3;
inline constexpr Tag kUnitName = 6;
inline constexpr int32_t kTimeNs = 1;
inline constexpr int32_t kSizeBytes = 3;
}  // namespace counter_descriptor

}  // namespace gpuprobe::timeline::perfetto
