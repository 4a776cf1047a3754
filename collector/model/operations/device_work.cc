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

}  // namespace

DeviceTotals& DeviceWork::DeviceFor(uint32_t ordinal) {
  const auto [it, added] = devices_.try_emplace(ordinal);
  if (added) it->second.info.set_ordinal(ordinal);
  return it->second;
}

KernelTotals& DeviceWork::KernelFor(uint32_t name) {
  KernelTotals*& kernel = kernel_by_name_[name];
  if (kernel == nullptr) {
    kernels_.push_back(std::make_unique<KernelTotals>());
    kernel = kernels_.back().get();
    kernel->name = name;
  }
  return *kernel;
}

absl::Status DeviceWork::On(const v1::KernelSite& def, StepTracker& steps) {
  if (absl::Status s = MakeRoom(sites_, def.id(), "kernel site"); !s.ok()) return s;
  KernelTotals& kernel = KernelFor(def.name());
  const uint64_t coarse = MixHash(static_cast<uint64_t>(OperationKind::kKernel), def.name());
  uint64_t fine = coarse;
  for (const uint32_t size :
       {def.grid_x(), def.grid_y(), def.grid_z(), def.block_x(), def.block_y(), def.block_z()})
    fine = MixHash(fine, size);
  const OperationTokens::Token token = steps.TokenOf(coarse, fine);
  kernel.token = token.coarse;
  const std::string& name = names_.String(def.name());
  sites_[def.id()] = {.kernel = &kernel,
                      .device = &DeviceFor(def.device()),
                      .collective_op = OperationIdOfKernel(name),
                      .token = token,
                      .roles = RolesOf(name),
                      .stream = def.stream(),
                      .calls = sites_[def.id()].calls,
                      .geometry = {.grid = {def.grid_x(), def.grid_y(), def.grid_z()},
                                   .block = {def.block_x(), def.block_y(), def.block_z()}}};
  return absl::OkStatus();
}

uint8_t DeviceWork::RolesOf(const std::string& kernel) const {
  const bool marked = marker_.kind() == StepMarker::Kind::kKernel && marker_.Matches(kernel);
  return static_cast<uint8_t>(RolesOfKernel(kernel) | (marked ? kRoleMarker : 0));
}

Operation DeviceWork::On(const KernelRecord& r) {
  Site& site = sites_[r.site];
  ++totals_.kernels;
  ++site.calls;
  if (r.graph_node != 0) ++totals_.graph_kernels;
  const uint64_t duration_ns = clock_.Length(r.start_ns, r.end_ns);
  if (duration_ns < ProcessTotals::kShortKernelNs) {
    ++totals_.short_kernels;
    totals_.short_kernel_ns += duration_ns;
  }
  site.kernel->time_ns.Add(duration_ns);
  ++site.device->kernels;
  site.device->first_kernel_ns = std::min(site.device->first_kernel_ns, r.start_ns);
  site.device->last_kernel_ns = std::max(site.device->last_kernel_ns, r.end_ns);
  return {.correlation = r.correlation,
          .graph_node = r.graph_node,
          .start_ns = r.start_ns,
          .end_ns = r.end_ns,
          .op = site.collective_op,
          .site = r.site,
          .kind = site.collective_op != 0 ? OperationKind::kCollectiveKernel : OperationKind::kKernel};
}

Operation DeviceWork::On(const CopyRecord& r) {
  const auto direction = static_cast<size_t>(r.direction);
  CopyTotals& totals = totals_.copies[direction < totals_.copies.size() ? direction : 0];
  ++totals.count;
  totals.bytes += r.bytes;
  const uint64_t duration_ns = clock_.Length(r.start_ns, r.end_ns);
  totals.duration_ns += duration_ns;
  totals.busy.Add(r.start_ns, r.end_ns);
  if (r.src_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_h2d);
  if (r.dst_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_d2h);
  return {.correlation = r.correlation,
          .graph_node = r.graph_node,
          .start_ns = r.start_ns,
          .end_ns = r.end_ns,
          .bytes = r.bytes,
          .kind = OperationKind::kCopy,
          .direction = static_cast<uint8_t>(r.direction),
          .pageable = r.src_memory == v1::MEMORY_KIND_PAGEABLE || r.dst_memory == v1::MEMORY_KIND_PAGEABLE};
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
          .kind = OperationKind::kMemset};
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
  absl::flat_hash_map<const DeviceTotals*, uint64_t> ordinals;
  for (const auto& [ordinal, device] : devices_) ordinals[&device] = ordinal;
  std::vector<SavedSite> saved;
  saved.reserve(sites_.size());
  for (const Site& site : sites_) {
    if (site.kernel == nullptr) {
      saved.emplace_back(0, 0, 0, 0, 0);
    } else {
      saved.emplace_back(site.kernel->name, ordinals.at(site.device) + 1, site.token.fine, site.token.coarse,
                         site.stream);
    }
  }
  return saved;
}

bool DeviceWork::LoadSites(const std::vector<SavedSite>& saved, const std::vector<uint64_t>& calls,
                           const std::vector<LaunchGeometry>& geometries) {
  if (calls.size() != saved.size() || geometries.size() != saved.size()) return false;
  kernel_by_name_.clear();
  for (const auto& kernel : kernels_) kernel_by_name_[kernel->name] = kernel.get();
  sites_.assign(saved.size(), {});
  for (size_t i = 0; i < saved.size(); ++i) {
    const auto& [name, device, fine, coarse, stream] = saved[i];
    if (device == 0) continue;
    const auto kernel = kernel_by_name_.find(name);
    const auto found = devices_.find(static_cast<uint32_t>(device - 1));
    if (kernel == kernel_by_name_.end() || found == devices_.end()) return false;
    sites_[i] = {.kernel = kernel->second,
                 .device = &found->second,
                 .collective_op = OperationIdOfKernel(names_.String(name)),
                 .token = {.fine = fine, .coarse = coarse},
                 .roles = RolesOf(names_.String(name)),
                 .stream = stream,
                 .calls = calls[i],
                 .geometry = geometries[i]};
  }
  return true;
}

}  // namespace gpuprobe::model
