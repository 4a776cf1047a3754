// The work of a process's devices: what its kernel sites stand for, totals by kernel name, device and
// direction, and records of the device as operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/operations/launch_geometry.h"
#include "collector/model/operations/operation.h"
#include "collector/model/process/process_clock.h"
#include "collector/model/process/process_names.h"
#include "collector/model/process/process_totals.h"
#include "collector/model/records.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/statistics/interval_union.h"
#include "collector/model/steps/operation_tokens.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_tracker.h"

namespace gpuprobe::model {

struct KernelTotals {
  // Per kernel name; hundreds of names with hundreds of thousands of samples each must stay small, for each
  // of a thousand ranks.
  static constexpr size_t kExactLimit = 1024;
  uint32_t name = 0;
  uint32_t token = 0;  // coarse, of StepTracker
  Distribution time_ns{kExactLimit};

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, name, token, time_ns);
  }
};

struct DeviceTotals {
  v1::Device info;  // ordinal only, if the process never described it
  // Work launched in order overlaps little: few intervals are enough, for each of a thousand ranks.
  static constexpr size_t kBusyIntervals = 2048;
  uint64_t kernels = 0;
  uint64_t first_kernel_ns = UINT64_MAX;  // its start
  uint64_t last_kernel_ns = 0;            // its end
  IntervalUnion busy{kBusyIntervals};     // kernels

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, info, kernels, first_kernel_ns, last_kernel_ns, busy);
  }
};

class DeviceWork {
 public:
  // What launches have in common: name, device, stream and launch geometry.
  struct Site {
    KernelTotals* kernel = nullptr;
    DeviceTotals* device = nullptr;
    uint32_t collective_op = 0;  // of a kernel of NCCL's, by its name
    OperationTokens::Token token;
    uint8_t roles = 0;
    uint32_t stream = 0;
    uint64_t calls = 0;
    LaunchGeometry geometry;
  };

  DeviceWork(const ProcessNames& names, const ProcessClock& clock, ProcessTotals& totals)
      : names_(names), clock_(clock), totals_(totals) {}

  // Before anything else.
  void SetMarker(const StepMarker& marker) { marker_ = marker; }
  absl::Status On(const v1::KernelSite& def, StepTracker& steps);
  void On(const v1::Device& device) { DeviceFor(device.ordinal()).info = device; }
  bool KnowsSite(uint32_t site) const { return site < sites_.size() && sites_[site].kernel != nullptr; }
  // REQUIRES: KnowsSite(site).
  uint32_t StreamOf(uint32_t site) const { return sites_[site].stream; }
  // The operation of NCCL's that the kernel's name says, 0 if it is another kernel. REQUIRES: its site is
  // known.
  uint32_t CollectiveOpOf(const KernelRecord& r) const { return sites_[r.site].collective_op; }
  // Count a record, and say what operation it is. REQUIRES: its times are in order; of a kernel, that its
  // site is known.
  Operation On(const KernelRecord& r);
  Operation On(const CopyRecord& r);
  Operation On(const MemsetRecord& r);
  // A graph as a whole: the device was busy, but the kind of work is not known.
  void On(const GraphRunRecord& r) { DeviceFor(r.device).busy.Add(r.start_ns, r.end_ns); }
  // In launch order: little is late then, so that a union of few intervals is enough.
  void OnInOrder(const Operation& operation);

  const Site& SiteOf(const Operation& operation) const;
  // Visits (name, geometry, calls) of everything that was launched: a kernel once for each geometry, device
  // and stream.
  template <typename Visitor>
  void ForEachSite(Visitor visit) const {
    for (const Site& site : sites_) {
      if (site.kernel != nullptr && site.calls > 0) visit(site.kernel->name, site.geometry, site.calls);
    }
  }
  const std::vector<std::unique_ptr<KernelTotals>>& kernels() const { return kernels_; }
  const std::map<uint32_t, DeviceTotals>& devices() const { return devices_; }

 private:
  DeviceTotals& DeviceFor(uint32_t ordinal);
  KernelTotals& KernelFor(uint32_t name);
  // By its name, and the user's marker.
  uint8_t RolesOf(const std::string& kernel) const;

  // A site by numbers: (name, device + 1, tokens, stream); zeros where an id was never defined.
  using SavedSite = std::tuple<uint32_t, uint64_t, uint32_t, uint32_t, uint32_t>;
  std::vector<SavedSite> SavedSites() const;
  // False: they name what is not known.
  bool LoadSites(const std::vector<SavedSite>& saved, const std::vector<uint64_t>& calls,
                 const std::vector<LaunchGeometry>& geometries);

  const ProcessNames& names_;
  const ProcessClock& clock_;
  ProcessTotals& totals_;
  StepMarker marker_;
  std::vector<Site> sites_;
  std::vector<std::unique_ptr<KernelTotals>> kernels_;
  absl::flat_hash_map<uint32_t, KernelTotals*> kernel_by_name_;
  std::map<uint32_t, DeviceTotals> devices_;

  friend StateAccess;
  // REQUIRES: the names are loaded.
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(names_, clock_, totals_, marker_, sites_, kernel_by_name_), kernels_,
                    devices_);
    std::vector<SavedSite> sites = SavedSites();
    std::vector<uint64_t> calls;
    std::vector<LaunchGeometry> geometries;
    for (const Site& site : sites_) {
      calls.push_back(site.calls);
      geometries.push_back(site.geometry);
    }
    archive(sites, calls, geometries);
    if constexpr (Archive::kReads) archive.Require(archive.ok() && LoadSites(sites, calls, geometries));
  }
};

}  // namespace gpuprobe::model
