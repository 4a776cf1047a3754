#include "collector/analysis/names.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace gpuprobe::analysis {

bool HasRank(const v1::Identity& identity) {
  return identity.rank() >= 0 && identity.rank_source() != v1::RANK_SOURCE_NONE;
}

std::string_view MemoryName(v1::MemoryKind kind) {
  return kind == v1::MEMORY_KIND_PINNED ? "pinned" : std::string_view(report::Word(kind));
}

std::string LossName(int reason) {
  const std::string name = v1::LossReason_Name(static_cast<v1::LossReason>(reason));
  if (name.empty()) return absl::StrCat("reason_", reason);  // a newer minor version's
  return absl::AsciiStrToLower(absl::StripPrefix(absl::string_view(name), "LOSS_"));
}

std::string ActivityKindName(uint32_t kind) {
  // CUPTI's enumeration without its prefix, from 0.
  static constexpr std::string_view kNames[] = {"unreadable",
                                                "memcpy",
                                                "memset",
                                                "kernel",
                                                "driver",
                                                "runtime",
                                                "event",
                                                "metric",
                                                "device",
                                                "context",
                                                "concurrent_kernel",
                                                "name",
                                                "marker",
                                                "marker_data",
                                                "source_locator",
                                                "global_access",
                                                "branch",
                                                "overhead",
                                                "cdp_kernel",
                                                "preemption",
                                                "environment",
                                                "event_instance",
                                                "memcpy2",
                                                "metric_instance",
                                                "instruction_execution",
                                                "unified_memory_counter",
                                                "function",
                                                "module",
                                                "device_attribute",
                                                "shared_access",
                                                "pc_sampling",
                                                "pc_sampling_record_info",
                                                "instruction_correlation",
                                                "openacc_data",
                                                "openacc_launch",
                                                "openacc_other",
                                                "cuda_event",
                                                "stream",
                                                "synchronization",
                                                "external_correlation",
                                                "nvlink",
                                                "instantaneous_event",
                                                "instantaneous_event_instance",
                                                "instantaneous_metric",
                                                "instantaneous_metric_instance",
                                                "memory",
                                                "pcie",
                                                "openmp",
                                                "internal_launch_api",
                                                "memory2",
                                                "memory_pool",
                                                "graph_trace",
                                                "jit",
                                                "device_graph_trace",
                                                "mem_decompress"};
  if (kind < std::size(kNames)) return std::string(kNames[kind]);
  return absl::StrCat("kind_", kind);
}

std::string Demangle(std::string_view name) {
  int status = 0;
  const std::string text(name);
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && plain != nullptr ? std::string(plain.get()) : text;
}

std::string ShortComm(const std::string& comm) {
  const size_t first = comm.find_first_not_of('0');
  return first == std::string::npos ? "0" : comm.substr(first, 8);
}

std::string CommName(uint64_t hash) { return absl::StrFormat("%016x", hash); }

std::string TellingName(std::string_view comm_name) {
  constexpr size_t kShortestHash = 16;
  const auto all = [comm_name](auto holds) { return std::all_of(comm_name.begin(), comm_name.end(), holds); };
  const bool number = all([](char c) { return absl::ascii_isdigit(c); });
  const bool hash = comm_name.size() >= kShortestHash && all([](char c) { return absl::ascii_isxdigit(c); });
  return number || hash ? std::string() : std::string(comm_name);
}

std::string CudaVersionName(int version) {
  return version <= 0 ? "" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string NcclVersionName(int version) {
  if (version <= 0) return "";
  // Up to 2.8 NCCL counted major * 1000, since 2.9 major * 10000.
  if (version < 10000) return absl::StrCat(version / 1000, ".", version % 1000 / 100, ".", version % 100);
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::pair<std::string, std::string> DeviceKey(const std::string& host, uint32_t ordinal,
                                              const std::string& uuid) {
  return {host, uuid.empty() ? absl::StrCat(ordinal) : uuid};
}

}  // namespace gpuprobe::analysis
