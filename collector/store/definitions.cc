#include "collector/store/definitions.h"

#include "collector/model/records.h"

namespace gpuprobe::store {

void Definitions::Learn(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) strings_[def.id()] = def;
  for (const v1::ThreadDef& def : batch.threads()) threads_[def.id()] = def;
  for (const v1::KernelSite& def : batch.kernel_sites()) sites_[def.id()] = def;
  for (const v1::Device& def : batch.devices()) devices_[def.ordinal()] = def;
  for (const v1::Communicator& comm : batch.communicators()) {
    model::MergeCommunicator(comm, communicators_[comm.id()]);
  }
  for (const v1::RangeCategory& def : batch.range_categories())
    categories_[{def.domain(), def.category()}] = def;
  if (batch.has_versions()) versions_ = batch.versions();
  if (batch.has_nccl_identity()) nccl_identity_ = batch.nccl_identity();
}

std::vector<std::string> Definitions::Frames() const {
  constexpr size_t kFrameBytes = size_t{4} << 20;
  std::vector<std::string> frames;
  v1::Frame frame;
  size_t bytes = 0;
  const auto finish = [&] {
    frame.mutable_batch()->set_restated(true);
    frames.push_back(frame.SerializeAsString());
    frame.Clear();
    bytes = 0;
  };
  const auto add = [&](const auto& definitions, auto&& append) {
    for (const auto& [id, definition] : definitions) {
      *append(*frame.mutable_batch()) = definition;
      bytes += definition.ByteSizeLong() + 8;
      if (bytes > kFrameBytes) finish();
    }
  };
  *frame.mutable_batch()->mutable_versions() = versions_;
  if (nccl_identity_.world_size() != 0) *frame.mutable_batch()->mutable_nccl_identity() = nccl_identity_;
  add(strings_, [](v1::Batch& b) { return b.add_strings(); });
  add(threads_, [](v1::Batch& b) { return b.add_threads(); });
  add(sites_, [](v1::Batch& b) { return b.add_kernel_sites(); });
  add(devices_, [](v1::Batch& b) { return b.add_devices(); });
  add(communicators_, [](v1::Batch& b) { return b.add_communicators(); });
  add(categories_, [](v1::Batch& b) { return b.add_range_categories(); });
  finish();
  return frames;
}

}  // namespace gpuprobe::store
