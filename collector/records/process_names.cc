#include "collector/records/process_names.h"

#include "collector/records/rows.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The text with each number replaced by '#'. A mangled name also loses its "_Z" and length, so that the shape
// still begins with the function's name: "ncclDevKernel_AllReduce_Sum_f#_RING_LL...".
std::string ShapeOf(std::string_view text) {
  if (text.starts_with("_Z") && text.size() > 2 && IsDigit(text[2]))
    text.remove_prefix(std::min(text.find_first_not_of("0123456789", 2), text.size()));
  std::string shape;
  for (const char c : text) {
    if (!IsDigit(c)) {
      shape.push_back(c);
    } else if (shape.empty() || shape.back() != '#') {
      shape.push_back('#');
    }
  }
  return shape;
}

}  // namespace

ProcessNames::ProcessNames() : texts_{{}, {.text = "other names", .id = kOtherNames}} {}

absl::Status ProcessNames::On(const v1::StringDef& def, bool restated) {
  if (IsBeyond(place_of_id_, def.id()) && def.id() < kFirstOperationId) {
    ++other_names_;
    return absl::OkStatus();
  }
  if (absl::Status s = MakeRoom(place_of_id_, def.id(), "string", restated); !s.ok()) return s;
  uint32_t& place = place_of_id_[def.id()];
  if (place == kUndefined) place = PlaceFor(def.value(), def.id());  // an id keeps its meaning
  return absl::OkStatus();
}

uint32_t ProcessNames::PlaceFor(const std::string& text, uint32_t id) {
  const uint32_t exact = FindOrAdd(text, id, kMaxTexts, kMaxTextBytes);
  if (exact != kUndefined) return exact;
  const std::string shape = ShapeOf(text);
  const uint32_t place = FindOrAdd(shape, id, kMaxTexts + kMaxShapes, kMaxTextBytes + kMaxShapeBytes);
  if (place == kUndefined || shape != text) ++other_names_;
  return place == kUndefined ? kOtherPlace : place;
}

uint32_t ProcessNames::FindOrAdd(const std::string& text, uint32_t id, size_t max_texts, size_t max_bytes) {
  const auto found = place_of_text_.find(text);
  if (found != place_of_text_.end()) return found->second;
  if (texts_.size() - kFirstPlace >= max_texts || text_bytes_ + text.size() > max_bytes) return kUndefined;
  const auto place = static_cast<uint32_t>(texts_.size());
  text_bytes_ += text.size();
  texts_.push_back(
      {.text = text, .id = id, .point_to_point = nccl::IsTransfer(text) || nccl::IsOneSided(text)});
  place_of_text_.emplace(texts_.back().text, place);
  return place;
}

void ProcessNames::Index() {
  text_bytes_ = 0;
  place_of_text_.clear();
  for (uint32_t place = kFirstPlace; place < texts_.size(); ++place) {
    text_bytes_ += texts_[place].text.size();
    place_of_text_.emplace(texts_[place].text, place);
  }
}

absl::Status ProcessNames::On(const v1::ThreadDef& def, uint8_t roles) {
  if (absl::Status s = MakeRoom(main_thread_, def.id(), "thread"); !s.ok()) return s;
  main_thread_[def.id()] = def.main();
  if (thread_roles_.size() < main_thread_.size()) thread_roles_.resize(main_thread_.size());
  thread_roles_[def.id()] = roles;
  return absl::OkStatus();
}

const v1::Communicator& ProcessNames::On(const v1::Communicator& comm) {
  v1::Communicator& known = communicators_[comm.id()];
  MergeCommunicator(comm, known);
  return known;
}

const std::string& ProcessNames::String(uint32_t id) const {
  return id < kFirstOperationId ? TextOf(id).text : OperationOfId(id);
}

const v1::Communicator* ProcessNames::FindCommunicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : &found->second;
}

}  // namespace gpuprobe::model
