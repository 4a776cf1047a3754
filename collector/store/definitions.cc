#include "collector/store/definitions.h"

#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "collector/records/bounds.h"
#include "collector/records/rows.h"

namespace gpuprobe::store {

void Definitions::Learn(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) strings_[def.id()] = def.value();
  for (const v1::ThreadDef& def : batch.threads()) threads_[def.id()] = def;
  for (const v1::KernelSite& def : batch.kernel_sites()) sites_[def.id()] = def;
  while (sites_.size() > kMaxKept) sites_.erase(sites_.begin());
  for (const v1::HostFrame& def : batch.host_frames()) {
    if (def.id() < model::kMaxFrames) frames_[def.id()] = def;
  }
  for (const v1::Device& def : batch.devices()) devices_[def.ordinal()] = def;
  for (const v1::PlanSeries& def : batch.plan_series()) series_[def.id()] = def;
  for (const v1::Communicator& comm : batch.communicators()) {
    model::MergeCommunicator(comm, communicators_[comm.id()]);
  }
  for (const v1::RangeCategory& def : batch.range_categories())
    categories_[{def.domain(), def.category()}] = def;
  if (batch.has_versions()) versions_ = batch.versions();
  if (batch.has_nccl_identity()) nccl_identity_ = batch.nccl_identity();
  if (batch.has_host_state()) {
    const auto& open = batch.host_state().open_ranges();
    open_ranges_.assign(open.begin(), open.end());
  }
  if (strings_.size() > strings_limit_) ForgetStrings();
}

void Definitions::ForgetStrings() {
  absl::flat_hash_set<uint32_t> needed(open_ranges_.begin(), open_ranges_.end());
  for (const auto& [id, site] : sites_) needed.insert(site.name());
  for (const auto& [id, frame] : frames_) needed.insert({frame.function(), frame.file()});
  for (const auto& [id, comm] : communicators_) needed.insert({comm.name(), comm.made_by()});
  for (const auto& [id, series] : series_) {
    for (const v1::PlanSeries::Part& part : series.parts()) needed.insert(part.op());
  }
  for (const auto& [key, category] : categories_) needed.insert({category.domain(), category.name()});
  size_t older = strings_.size() - kMaxKept;
  for (auto it = strings_.begin(); older > 0; --older)
    it = needed.contains(it->first) ? std::next(it) : strings_.erase(it);
  strings_limit_ = strings_.size() + kSlack;
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
  const auto on_added = [&](const auto& definition) {
    bytes += definition.ByteSizeLong() + 8;
    if (bytes > kFrameBytes) finish();
  };
  const auto add = [&](const auto& definitions, auto&& append) {
    for (const auto& [id, definition] : definitions) {
      *append(*frame.mutable_batch()) = definition;
      on_added(definition);
    }
  };
  *frame.mutable_batch()->mutable_versions() = versions_;
  if (nccl_identity_.world_size() != 0) *frame.mutable_batch()->mutable_nccl_identity() = nccl_identity_;
  for (const auto& [id, text] : strings_) {
    v1::StringDef* def = frame.mutable_batch()->add_strings();
    def->set_id(id);
    def->set_value(text);
    on_added(*def);
  }
  add(threads_, [](v1::Batch& b) { return b.add_threads(); });
  add(sites_, [](v1::Batch& b) { return b.add_kernel_sites(); });
  add(frames_, [](v1::Batch& b) { return b.add_host_frames(); });
  add(devices_, [](v1::Batch& b) { return b.add_devices(); });
  add(communicators_, [](v1::Batch& b) { return b.add_communicators(); });
  add(series_, [](v1::Batch& b) { return b.add_plan_series(); });
  add(categories_, [](v1::Batch& b) { return b.add_range_categories(); });
  finish();
  return frames;
}

}  // namespace gpuprobe::store
