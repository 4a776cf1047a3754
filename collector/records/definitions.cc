#include "collector/records/definitions.h"

#include <algorithm>

#include "collector/records/bounds.h"
#include "collector/records/rows.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::model {

const Thread* Definitions::FindThread(uint32_t id) const {
  const auto found = threads_.find(id);
  return found == threads_.end() ? nullptr : &found->second;
}

const v1::HostFrame* Definitions::FindFrame(uint32_t id) const {
  return id < frames_.size() && frames_[id].id() == id && id != 0 ? &frames_[id] : nullptr;
}

const v1::Communicator* Definitions::FindCommunicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : &found->second;
}

void Definitions::Learn(const v1::Batch& batch) {
  if (batch.has_versions())
    names_are_uncertain_ = (batch.versions().cupti_precautions() & cupti::kNamesUncertain) != 0;
  for (const v1::StringDef& def : batch.strings()) {
    if (!MakeRoom(strings_, def.id(), "string", true).ok() || strings_[def.id()] != nullptr) continue;
    strings_[def.id()] = &names_.emplace_back(Name{.spelled = spelling_(def.value()),
                                                   .operation = OperationOfKernel(def.value()),
                                                   .nature = NatureByName(def.value())});
  }
  for (const v1::KernelSite& def : batch.kernel_sites()) {
    if (!MakeRoom(sites_, def.id(), "kernel site", true).ok() || sites_[def.id()] != nullptr) continue;
    const Name& name = NameOf(def.name());
    sites_[def.id()] =
        &known_sites_.emplace_back(Site{.geometry = def, .operation = name.operation, .nature = name.nature});
  }
  for (const v1::HostFrame& def : batch.host_frames()) {
    if (def.id() >= kMaxFrames || def.caller() >= std::max(def.id(), 1U)) continue;
    if (def.id() >= frames_.size())
      frames_.resize(std::max<size_t>(size_t{def.id()} + 1, std::min(frames_.size() * 2, kMaxFrames)));
    if (frames_[def.id()].id() == 0) frames_[def.id()] = def;
  }
  for (const v1::ThreadDef& def : batch.threads()) {
    if (def.id() >= kMaxId) continue;
    threads_[def.id()] = {.tid = def.tid(),
                          .main = def.main(),
                          .name = spelling_(def.given_name().empty() ? def.name() : def.given_name())};
  }
  for (const v1::ObjectName& object : batch.object_names()) {
    if (object.kind() == v1::NAMED_OBJECT_DEVICE) device_names_[{0, object.id()}] = object.name();
    if (object.kind() == v1::NAMED_OBJECT_STREAM)
      stream_names_[{object.context(), object.id()}] = object.name();
  }
  for (const v1::RangeCategory& category : batch.range_categories())
    category_names_[{category.domain(), category.category()}] = category.name();
  for (const v1::Communicator& comm : batch.communicators())
    MergeCommunicator(comm, communicators_[comm.id()]);
}

}  // namespace gpuprobe::model
