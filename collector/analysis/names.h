// Names of wire enums, and demangled names, for reports and exports.
//
// Separate because the report, the export and the truth log must agree on these words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "collector/report/words.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::analysis {

// Whether a process says which rank it is.
bool HasRank(const v1::Identity& identity);

// The memory of an allocation or a copy's side: "pageable pinned device managed pool array vmm graph unknown"
std::string_view MemoryName(v1::MemoryKind kind);
// OVERHEAD_KIND_BUFFER_FLUSH -> "buffer_flush": the value's name in lower case without its enum's; "unknown"
// for a newer minor version's.
template <typename Enum>
requires google::protobuf::is_proto_enum<Enum>::value const std::string& EnumWord(Enum value) {
  return report::Word(value);
}
inline const std::string& DirectionName(v1::CopyDirection direction) { return EnumWord(direction); }
inline const std::string& CommunicatorStateName(v1::CommunicatorState state) { return EnumWord(state); }
inline const std::string& SyncName(v1::SyncKind kind) { return EnumWord(kind); }
// The enum's name in lower case without its prefix: "send_queue_full"
std::string LossName(int reason);
// A CUpti_ActivityKind: "overhead", or "kind_77" for one without a name here; "unreadable" for 0.
std::string ActivityKindName(uint32_t kind);
// The function as a person would write it; the name itself if it is not mangled.
std::string Demangle(std::string_view name);
// 16 hex digits.
std::string CommName(uint64_t hash);
// The first eight of these digits after leading zeros: hashes that count up from a small number would all
// begin alike.
std::string ShortComm(const std::string& comm);
// The name that a program gave a communicator, for people: empty for one that a framework made up, such as
// PyTorch's "0" and its 40 hex digits for the dimension of a mesh.
std::string TellingName(std::string_view comm_name);
// 13000 -> "13.0", as cuDriverGetVersion counts; empty for 0.
std::string CudaVersionName(int version);
// 22809 -> "2.28.9", as ncclGetVersion counts; empty for 0.
std::string NcclVersionName(int version);

// Identifies a device within a job: its host and its UUID, or its ordinal where that is not known. Several
// ranks may describe the same one.
std::pair<std::string, std::string> DeviceKey(const std::string& host, uint32_t ordinal,
                                              const std::string& uuid);

}  // namespace gpuprobe::analysis
