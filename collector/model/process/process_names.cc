#include "collector/model/process/process_names.h"

#include "collector/model/calls/collective_kernels.h"
#include "collector/model/records.h"
#include "collector/model/steps/work_roles.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {

absl::Status ProcessNames::On(const v1::StringDef& def) {
  if (absl::Status s = MakeRoom(strings_, def.id(), "string"); !s.ok()) return s;
  strings_[def.id()] = def.value();
  if (nccl::IsTransfer(def.value()) || nccl::IsOneSided(def.value())) {
    if (point_to_point_.size() <= def.id()) point_to_point_.resize(def.id() + 1);
    point_to_point_[def.id()] = true;
  }
  return absl::OkStatus();
}

absl::Status ProcessNames::On(const v1::ThreadDef& def) {
  if (absl::Status s = MakeRoom(main_thread_, def.id(), "thread"); !s.ok()) return s;
  main_thread_[def.id()] = def.main();
  if (thread_roles_.size() < main_thread_.size()) thread_roles_.resize(main_thread_.size());
  thread_roles_[def.id()] = RolesOfThread(def.name());
  return absl::OkStatus();
}

const v1::Communicator& ProcessNames::On(const v1::Communicator& comm) {
  v1::Communicator& known = communicators_[comm.id()];
  MergeCommunicator(comm, known);
  return known;
}

const std::string& ProcessNames::String(uint32_t id) const {
  return id < strings_.size() ? strings_[id] : OperationOfId(id);
}

const v1::Communicator* ProcessNames::FindCommunicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : &found->second;
}

}  // namespace gpuprobe::model
