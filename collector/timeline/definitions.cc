#include "collector/timeline/definitions.h"

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/records.h"
#include "collector/text/characters.h"

namespace gpuprobe::timeline {
namespace {

constexpr uint32_t kMaxId = uint32_t{1} << 22;  // a larger one is a client's mistake

std::string Triple(uint32_t x, uint32_t y, uint32_t z) { return absl::StrCat("[", x, ", ", y, ", ", z, "]"); }

}  // namespace

std::string_view Definitions::String(uint32_t id) const {
  return id < strings_.size() ? strings_[id] : std::string_view();
}

std::string_view Definitions::Demangled(uint32_t name) {
  const auto [it, added] = demangled_.try_emplace(name);
  if (added) it->second = text_.emplace_back(analysis::Demangle(String(name)));
  return it->second;
}

const Site* Definitions::FindSite(uint32_t id) const {
  return id < site_by_id_.size() ? site_by_id_[id] : nullptr;
}

const Thread& Definitions::ThreadOf(uint32_t id) const {
  static const Thread kUnknown;
  const auto found = threads_.find(id);
  return found == threads_.end() ? kUnknown : found->second;
}

const v1::Communicator* Definitions::FindCommunicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : &found->second;
}

std::string Definitions::StreamName(uint32_t device, uint32_t context, uint32_t stream) const {
  std::string name = absl::StrCat("GPU ", device, " stream ", stream);
  const auto given = stream_names_.find({context, stream});
  if (given != stream_names_.end()) name.append(" ").append(String(given->second));
  return name;
}

void Definitions::Learn(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) {
    if (def.id() >= kMaxId) continue;
    if (def.id() >= strings_.size()) strings_.resize(def.id() + 1);
    strings_[def.id()] = text_.emplace_back(text::ValidUtf8(def.value()));
  }
  for (const v1::ThreadDef& def : batch.threads())
    threads_[def.id()] = {.tid = def.tid(),
                          .name = text::ValidUtf8(def.given_name().empty() ? def.name() : def.given_name())};
  for (const v1::ObjectName& object : batch.object_names()) {
    if (object.kind() == v1::NAMED_OBJECT_STREAM)
      stream_names_[{object.context(), object.id()}] = object.name();
  }
  for (const v1::Communicator& comm : batch.communicators())
    model::MergeCommunicator(comm, communicators_[comm.id()]);
  for (const v1::KernelSite& def : batch.kernel_sites()) {
    if (def.id() >= kMaxId) continue;
    Site& site = sites_[def.id()];
    site.name = Demangled(def.name());
    site.collective = model::OperationOfKernel(String(def.name()));
    site.grid = Triple(def.grid_x(), def.grid_y(), def.grid_z());
    site.block = Triple(def.block_x(), def.block_y(), def.block_z());
    site.geometry = def;
    for (const Process::Device& device : process_.devices) {
      if (device.ordinal == def.device()) site.occupancy = OccupancyOf(def, device);
    }
    if (def.id() >= site_by_id_.size()) site_by_id_.resize(def.id() + 1);
    site_by_id_[def.id()] = &site;
  }
}

}  // namespace gpuprobe::timeline
