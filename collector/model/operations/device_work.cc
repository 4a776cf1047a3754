#include "collector/model/operations/device_work.h"

#include <algorithm>

#include "collector/model/steps/work_roles.h"

namespace gpuprobe::model {
namespace {

void CountPageable(const CopyRecord& copy, uint64_t duration_ns, PageableTotals& totals) {
  ++totals.count;
  totals.bytes += copy.bytes;
  totals.duration_ns += duration_ns;
}

uint64_t CoarseHash(uint32_t name) { return MixHash(static_cast<uint64_t>(OperationKind::kKernel), name); }

uint64_t FineHash(uint64_t coarse, const LaunchGeometry& geometry) {
  for (const auto& sizes : {geometry.grid, geometry.block}) {
    for (const uint32_t size : sizes) coarse = MixHash(coarse, size);
  }
  return coarse;
}

uint64_t SiteHash(uint64_t fine, uint32_t device, uint32_t stream, KernelNature nature) {
  return MixHash(MixHash(MixHash(fine, device), stream), static_cast<uint64_t>(nature));
}

}  // namespace

DeviceTotals& DeviceWork::DeviceFor(uint32_t ordinal) {
  const auto [it, added] = devices_.try_emplace(ordinal);
  if (added) it->second.info.set_ordinal(ordinal);
  return it->second;
}

KernelTotals& DeviceWork::KernelFor(uint32_t name, uint32_t device, KernelNature nature) {
  KernelTotals*& kernel = kernel_by_name_[{name, device, nature}];
  if (kernel == nullptr) {
    kernels_.push_back(std::make_unique<KernelTotals>());
    kernel = kernels_.back().get();
    kernel->name = name;
    kernel->device = device;
    kernel->nature = nature;
    kernel->misnamed =
        name != ProcessNames::kOtherNames && IsMisnamed(nature, NatureByName(names_.String(name)));
  }
  return *kernel;
}

absl::Status DeviceWork::On(const v1::KernelSite& def, StepTracker& steps, bool restated) {
  if (IsBeyond(place_of_id_, def.id())) {
    if (beyond_ == 0) {
      beyond_ = PlaceOf(ProcessNames::kOtherNames, def.device(), 0, {}, KernelNature::kCompute, steps);
      Describe(sites_[beyond_]);
    }
    return absl::OkStatus();
  }
  if (absl::Status s = MakeRoom(place_of_id_, def.id(), "kernel site", restated); !s.ok()) return s;
  const LaunchGeometry geometry{.grid = {def.grid_x(), def.grid_y(), def.grid_z()},
                                .block = {def.block_x(), def.block_y(), def.block_z()}};
  const uint32_t name = names_.Canonical(def.name());
  const uint32_t place =
      PlaceOf(name, def.device(), def.stream(), geometry, NatureByName(names_.String(name)), steps);
  Describe(sites_[place]);  // a known one, too: its name may have been undefined before
  place_of_id_[def.id()] = place;
  return absl::OkStatus();
}

uint32_t DeviceWork::PlaceOf(uint32_t name, uint32_t device, uint32_t stream, const LaunchGeometry& geometry,
                             KernelNature nature, StepTracker& steps) {
  const uint64_t coarse = CoarseHash(name);
  const uint64_t fine = FineHash(coarse, geometry);
  const uint64_t hash = SiteHash(fine, device, stream, nature);
  if (const auto known = place_of_site_.find(hash); known != place_of_site_.end()) return known->second;
  const bool detailed = stream != 0 || geometry != LaunchGeometry{};
  if (detailed && sites_.size() > kMaxSites) return PlaceOf(name, device, 0, {}, nature, steps);
  const auto place = static_cast<uint32_t>(sites_.size());
  place_of_site_.emplace(hash, place);
  KernelTotals& kernel = KernelFor(name, device, nature);
  const OperationTokens::Token token = steps.TokenOf(coarse, fine);
  if (!Communicates(nature)) kernel.token = token.coarse;
  sites_.push_back({.kernel = &kernel,
                    .device = &DeviceFor(device),
                    .token = token,
                    .stream = stream,
                    .geometry = geometry});
  return place;
}

void DeviceWork::Describe(Site& site) const {
  const std::string& name = names_.String(site.kernel->name);
  site.named = NatureByName(name);
  if (site.kernel->misnamed) return;
  const bool marked = marker_.kind() == StepMarker::Kind::kKernel && marker_.Matches(name);
  site.collective_op = OperationIdOfKernel(name);
  const uint16_t roles = RolesOfKernel(name);
  const bool fills = (roles & kRoleMemset) != 0 && (roles & kRolePyTorch) != 0;
  const bool seed = fills && site.geometry.grid == std::array<uint32_t, 3>{1, 1, 1};
  site.roles = static_cast<uint16_t>(roles | (marked ? kRoleMarker : 0) | (seed ? kRoleSeed : 0));
}

Operation DeviceWork::On(const KernelRecord& r) {
  const uint32_t place = PlaceOf(r.site);
  Site& site = sites_[place];
  ++totals_.kernels;
  if (r.graph_node != 0) ++totals_.graph_kernels;
  const uint64_t duration_ns = clock_.Length(r.start_ns, r.end_ns);
  if (duration_ns < ProcessTotals::kShortKernelNs) {
    ++totals_.short_kernels;
    totals_.short_kernel_ns += duration_ns;
  }
  ++site.device->kernels;
  site.device->first_kernel_ns = std::min(site.device->first_kernel_ns, r.start_ns);
  site.device->last_kernel_ns = std::max(site.device->last_kernel_ns, r.end_ns);
  return {.correlation = r.correlation,
          .graph_node = r.graph_node,
          .start_ns = r.start_ns,
          .end_ns = r.end_ns,
          .op = site.collective_op,
          .site = place,
          .kind = site.collective_op != 0 ? OperationKind::kCollectiveKernel : OperationKind::kKernel,
          .device = static_cast<uint16_t>(site.kernel->device)};
}

Operation DeviceWork::On(const CopyRecord& r) {
  const auto direction = static_cast<size_t>(r.direction);
  CopyTotals& totals = totals_.copies[direction < totals_.copies.size() ? direction : 0];
  ++totals.count;
  totals.bytes += r.bytes;
  const uint64_t duration_ns = clock_.Length(r.start_ns, r.end_ns);
  totals.duration_ns += duration_ns;
  totals.busy.Add(r.start_ns, r.end_ns);
  DeviceCopies& here = DeviceFor(r.device).copies[static_cast<uint32_t>(r.direction)];
  ++here.count;
  here.bytes += r.bytes;
  here.duration_ns += duration_ns;
  if (r.src_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_h2d);
  if (r.dst_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_d2h);
  return {.correlation = r.correlation,
          .graph_node = r.graph_node,
          .start_ns = r.start_ns,
          .end_ns = r.end_ns,
          .bytes = r.bytes,
          .kind = OperationKind::kCopy,
          .direction = static_cast<uint8_t>(r.direction),
          .device = static_cast<uint16_t>(r.device),
          .pageable = r.src_memory == v1::MEMORY_KIND_PAGEABLE || r.dst_memory == v1::MEMORY_KIND_PAGEABLE,
          .blocks_host = r.direction == v1::COPY_DIRECTION_D2H && r.graph_node == 0 &&
                         (!r.asynchronous || r.dst_memory == v1::MEMORY_KIND_PAGEABLE)};
}

Operation DeviceWork::On(const MemsetRecord& r) {
  ++totals_.memsets;
  totals_.memset_bytes += r.bytes;
  totals_.memset_ns += r.end_ns - r.start_ns;
  return {.correlation = r.correlation,
          .graph_node = r.graph_node,
          .start_ns = r.start_ns,
          .end_ns = r.end_ns,
          .bytes = r.bytes,
          .kind = OperationKind::kMemset,
          .device = static_cast<uint16_t>(r.device)};
}

void DeviceWork::Settle(Operation& kernel, uint64_t plan, uint32_t owner, StepTracker& steps) {
  if (kernel.kind != OperationKind::kKernel && kernel.kind != OperationKind::kCollectiveKernel) return;
  if (kernel.site == 0 || kernel.site >= sites_.size()) return;  // of a damaged state
  const KernelNature nature = NatureOf({.named = sites_[kernel.site].named, .plan = plan, .owner = owner});
  if (nature != sites_[kernel.site].kernel->nature) kernel.site = OtherPlace(kernel.site, nature, steps);
  kernel.kind = nature == KernelNature::kNccl ? OperationKind::kCollectiveKernel : OperationKind::kKernel;
  Site& site = sites_[kernel.site];
  if (kernel.comm == 0) kernel.op = site.collective_op;
  ++site.calls;
  site.kernel->time_ns.Add(clock_.Length(kernel.start_ns, kernel.end_ns));
}

uint32_t DeviceWork::OtherPlace(uint32_t place, KernelNature nature, StepTracker& steps) {
  if (sites_[place].other == 0) {
    const Site site = sites_[place];
    const uint32_t other =
        PlaceOf(site.kernel->name, site.kernel->device, site.stream, site.geometry, nature, steps);
    Describe(sites_[other]);
    sites_[place].other = other;
  }
  return sites_[place].other;
}

uint64_t DeviceWork::misnamed() const {
  uint64_t count = 0;
  for (const auto& kernel : kernels_) count += kernel->misnamed ? kernel->time_ns.count() : 0;
  return count;
}

void DeviceWork::OnInOrder(const Operation& operation) {
  if (operation.kind != OperationKind::kKernel && operation.kind != OperationKind::kCollectiveKernel) return;
  if (DeviceTotals* device = SiteOf(operation).device; device != nullptr)
    device->busy.Add(operation.start_ns, operation.end_ns);
}

const DeviceWork::Site& DeviceWork::SiteOf(const Operation& operation) const {
  static const Site kUnknown;  // of a damaged state
  return operation.site < sites_.size() ? sites_[operation.site] : kUnknown;
}

std::vector<DeviceWork::SavedSite> DeviceWork::SavedSites() const {
  absl::flat_hash_map<const DeviceTotals*, uint32_t> ordinals;
  for (const auto& [ordinal, device] : devices_) ordinals[&device] = ordinal;
  std::vector<SavedSite> saved;
  saved.reserve(sites_.size());
  for (size_t i = 1; i < sites_.size(); ++i) {
    const Site& site = sites_[i];
    saved.emplace_back(site.kernel->name, ordinals.at(site.device), site.kernel->nature, site.token.fine,
                       site.token.coarse, site.stream);
  }
  return saved;
}

bool DeviceWork::LoadSites(const std::vector<SavedSite>& saved, const std::vector<uint64_t>& calls,
                           const std::vector<LaunchGeometry>& geometries) {
  if (calls.size() != saved.size() || geometries.size() != saved.size()) return false;
  kernel_by_name_.clear();
  for (const auto& kernel : kernels_)
    kernel_by_name_[{kernel->name, kernel->device, kernel->nature}] = kernel.get();
  sites_.assign(1, {});
  place_of_site_.clear();
  for (size_t i = 0; i < saved.size(); ++i) {
    const auto& [name, device, nature, fine, coarse, stream] = saved[i];
    const auto kernel = kernel_by_name_.find({name, device, nature});
    const auto found = devices_.find(device);
    if (kernel == kernel_by_name_.end() || found == devices_.end()) return false;
    place_of_site_[SiteHash(FineHash(CoarseHash(name), geometries[i]), device, stream, nature)] =
        static_cast<uint32_t>(sites_.size());
    sites_.push_back({.kernel = kernel->second,
                      .device = &found->second,
                      .token = {.fine = fine, .coarse = coarse},
                      .stream = stream,
                      .calls = calls[i],
                      .geometry = geometries[i]});
    Describe(sites_.back());
  }
  return beyond_ < sites_.size() && std::all_of(place_of_id_.begin(), place_of_id_.end(),
                                                [this](uint32_t place) { return place < sites_.size(); });
}

}  // namespace gpuprobe::model
