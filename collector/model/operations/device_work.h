// The work of a process's devices: what its kernel sites stand for, totals by kernel name, device and
// direction, and records of the device as operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/facts/process_totals.h"
#include "collector/model/operations/launch_geometry.h"
#include "collector/model/operations/operation.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/statistics/interval_union.h"
#include "collector/model/steps/operation_tokens.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_tracker.h"
#include "collector/records/collective_kernels.h"
#include "collector/records/process_clock.h"
#include "collector/records/process_names.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// Launches of a kernel on a device. Launches whose record has another kernel's name have totals of their own.
struct KernelTotals {
  // Per kernel name and device; hundreds of names with hundreds of thousands of samples each must stay small,
  // for each of a thousand ranks.
  static constexpr size_t kExactLimit = 1024;
  uint32_t name = 0;
  uint32_t device = 0;
  uint32_t token = 0;  // coarse, of StepTracker; 0 if it communicates
  KernelNature nature = KernelNature::kCompute;
  bool misnamed = false;  // the name is another kernel's: its launches say otherwise
  Distribution time_ns{kExactLimit};

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, name, device, token, nature, misnamed, time_ns);
  }
};

// Copies of one direction on a device.
struct DeviceCopies {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;  // sum

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, count, bytes, duration_ns);
  }
};

struct DeviceTotals {
  v1::Device info;  // ordinal only, if the process never described it
  // Work launched in order overlaps little: few intervals are enough, for each of a thousand ranks.
  static constexpr size_t kBusyIntervals = 2048;
  uint64_t kernels = 0;
  uint64_t first_kernel_ns = UINT64_MAX;    // its start
  uint64_t last_kernel_ns = 0;              // its end
  IntervalUnion busy{kBusyIntervals};       // kernels
  std::map<uint32_t, DeviceCopies> copies;  // by v1::CopyDirection

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, info, kernels, first_kernel_ns, last_kernel_ns, busy, copies);
  }
};

class DeviceWork {
 public:
  // The most distinct sites. Launches at later ones are counted by name and device alone, at a site without
  // stream and geometry.
  static constexpr size_t kMaxSites = 65536;

  // What launches have in common: name, device, stream and launch geometry.
  struct Site {
    KernelTotals* kernel = nullptr;
    DeviceTotals* device = nullptr;
    KernelNature named = KernelNature::kCompute;  // by the kernel's name
    uint32_t collective_op = 0;  // of a kernel of NCCL's, by its name; 0 if that is another kernel's
    uint32_t other = 0;          // the place of the launches here that are of another nature; 0: none yet
    OperationTokens::Token token;
    uint16_t roles = 0;
    uint32_t stream = 0;
    uint64_t calls = 0;
    LaunchGeometry geometry;
  };

  DeviceWork(const ProcessNames& names, const ProcessClock& clock, ProcessTotals& totals)
      : names_(names), clock_(clock), totals_(totals) {}

  // Before anything else.
  void SetMarker(const StepMarker& marker) { marker_ = marker; }
  // `restated`: see ProcessNames.
  absl::Status On(const v1::KernelSite& def, StepTracker& steps, bool restated = false);
  void On(const v1::Device& device) { DeviceFor(device.ordinal()).info = device; }
  bool KnowsSite(uint32_t site) const { return PlaceOf(site) != 0; }
  // REQUIRES: KnowsSite(site).
  uint32_t StreamOf(uint32_t site) const { return sites_[PlaceOf(site)].stream; }
  // The operation that the kernel's name says, 0 if it is not NCCL's. REQUIRES: its site is known.
  uint32_t CollectiveOpOf(const KernelRecord& r) const { return sites_[PlaceOf(r.site)].collective_op; }
  // Count a record and return its operation. REQUIRES: start <= end; for a kernel, a known site.
  Operation On(const KernelRecord& r);
  Operation On(const CopyRecord& r);
  Operation On(const MemsetRecord& r);
  // A graph as a whole: the device was busy, but the kind of work is not known.
  void On(const GraphRunRecord& r) { DeviceFor(r.device).busy.Add(r.start_ns, r.end_ns); }
  // The kernel's launch is known: decides the kernel's nature and counts it accordingly. `plan`, `owner`: see
  // KernelEvidence. `steps`: whose tokens kernels have.
  void Settle(Operation& kernel, uint64_t plan, uint32_t owner, StepTracker& steps);
  // Kernels whose records have another kernel's name.
  uint64_t misnamed() const;
  // In launch order: little is late then, so that a union of few intervals is enough.
  void OnInOrder(const Operation& operation);

  const Site& SiteOf(const Operation& operation) const;
  // Visits (kernel, geometry, calls) of everything that was launched: a kernel once for each geometry, device
  // and stream.
  template <typename Visitor>
  void ForEachSite(Visitor visit) const {
    for (const Site& site : sites_) {
      if (site.kernel != nullptr && site.calls > 0) visit(*site.kernel, site.geometry, site.calls);
    }
  }
  const std::vector<std::unique_ptr<KernelTotals>>& kernels() const { return kernels_; }
  const std::map<uint32_t, DeviceTotals>& devices() const { return devices_; }

 private:
  DeviceTotals& DeviceFor(uint32_t ordinal);
  KernelTotals& KernelFor(uint32_t name, uint32_t device, KernelNature nature);
  // Where a KernelSite is in sites_; 0 if it was not defined.
  uint32_t PlaceOf(uint32_t site) const {
    return site < place_of_id_.size() ? place_of_id_[site] : IsBeyond(place_of_id_, site) ? beyond_ : 0;
  }
  // The place of the site with these properties, added if new; without stream and geometry if there are too
  // many sites.
  uint32_t PlaceOf(uint32_t name, uint32_t device, uint32_t stream, const LaunchGeometry& geometry,
                   KernelNature nature, StepTracker& steps);
  // The place that counts a site's launches of `nature`, which is not the site's own.
  uint32_t OtherPlace(uint32_t place, KernelNature nature, StepTracker& steps);
  // Sets what follows from the kernel's name and the user's marker.
  void Describe(Site& site) const;

  // A site by numbers: (name, device, nature, tokens, stream).
  using SavedSite = std::tuple<uint32_t, uint32_t, KernelNature, uint32_t, uint32_t, uint32_t>;
  std::vector<SavedSite> SavedSites() const;
  // False if they refer to an unknown kernel or device, or if an id refers to a site that is not among them.
  bool LoadSites(const std::vector<SavedSite>& saved, const std::vector<uint64_t>& calls,
                 const std::vector<LaunchGeometry>& geometries);

  const ProcessNames& names_;
  const ProcessClock& clock_;
  ProcessTotals& totals_;
  StepMarker marker_;
  std::vector<Site> sites_{1};                             // the first one stands for undefined sites
  absl::flat_hash_map<uint64_t, uint32_t> place_of_site_;  // by SiteHash
  std::vector<uint32_t> place_of_id_;                      // by KernelSite
  uint32_t beyond_ = 0;                                    // the place of all ids from kMaxId on
  std::vector<std::unique_ptr<KernelTotals>> kernels_;
  using KernelKey = std::tuple<uint32_t, uint32_t, KernelNature>;  // name, device
  absl::flat_hash_map<KernelKey, KernelTotals*> kernel_by_name_;
  std::map<uint32_t, DeviceTotals> devices_;

  friend StateAccess;
  // REQUIRES: the names are loaded.
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this,
                    Rebuilt(names_, clock_, totals_, marker_, sites_, place_of_site_, place_of_id_, beyond_,
                            kernel_by_name_),
                    kernels_, devices_);
    std::vector<SavedSite> sites = SavedSites();
    std::vector<uint64_t> calls;
    std::vector<LaunchGeometry> geometries;
    for (size_t i = 1; i < sites_.size(); ++i) {
      calls.push_back(sites_[i].calls);
      geometries.push_back(sites_[i].geometry);
    }
    std::vector<uint32_t> places = place_of_id_;
    uint32_t beyond = beyond_;
    archive(sites, calls, geometries, places, beyond);
    if constexpr (Archive::kReads) {
      place_of_id_ = std::move(places);
      beyond_ = beyond;
      archive.Require(archive.ok() && LoadSites(sites, calls, geometries));
    }
  }
};

}  // namespace gpuprobe::model
