// What a process's numbers stand for: strings, threads and communicators, as its batches define them.
//
// When the injector has too many texts, it forgets them all and defines those still in use again, under new
// ids. Each distinct text is therefore kept once, under the first id it had (its canonical id). kMaxTexts
// bounds the memory of everything that is kept by name: after that many texts, a new one is replaced by its
// shape ("step #" for "step 70001"), and after kMaxShapes shapes by "other names". Steps and phases are found
// from a shape as from the text, unless a step marker contains a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/state/members.h"
#include "collector/records/bounds.h"
#include "collector/records/collective_kernels.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ProcessNames {
 public:
  static constexpr size_t kMaxTexts = 65536;
  static constexpr size_t kMaxTextBytes = size_t{8} << 20;
  // In addition, for the texts that do not fit.
  static constexpr size_t kMaxShapes = 4096;
  static constexpr size_t kMaxShapeBytes = size_t{1} << 20;
  // The id of "other names"; no StringDef has it.
  static constexpr uint32_t kOtherNames = kMaxId;

  ProcessNames();
  // `restated`: from the head of a log, which omits definitions that nothing refers to any more.
  absl::Status On(const v1::StringDef& def, bool restated = false);
  // `roles`: WorkRoles of what a thread of this name launches.
  absl::Status On(const v1::ThreadDef& def, uint8_t roles);
  // Returns everything known about the communicator.
  const v1::Communicator& On(const v1::Communicator& comm);

  // Also resolves operations that only kernels name (collective_kernels.h).
  const std::string& String(uint32_t id) const;
  bool Knows(uint32_t id) const { return id < place_of_id_.size(); }
  // Maps all ids of the same text, or of texts with the same shape, to one id. Undefined ids are unchanged.
  uint32_t Canonical(uint32_t id) const {
    const Text& text = TextOf(id);
    return &text == &texts_[kUndefined] ? id : text.id;
  }
  // Definitions whose text was replaced by its shape or by "other names".
  uint64_t other_names() const { return other_names_; }
  // Whether it names a send, a receive or a one-sided operation.
  bool IsPointToPoint(uint32_t op) const { return TextOf(op).point_to_point; }
  bool IsMainThread(uint32_t thread) const { return thread < main_thread_.size() && main_thread_[thread]; }
  // WorkRoles of what the thread launches.
  uint8_t ThreadRoles(uint32_t thread) const {
    return thread < thread_roles_.size() ? thread_roles_[thread] : uint8_t{0};
  }
  // nullptr if it was never described.
  const v1::Communicator* FindCommunicator(uint32_t id) const;
  // By Communicator.id. `time_ns`: when it was first reported.
  const absl::flat_hash_map<uint32_t, v1::Communicator>& communicators() const { return communicators_; }

 private:
  struct Text {
    std::string text;
    uint32_t id = 0;              // canonical
    bool point_to_point = false;  // as an operation

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, text, id, point_to_point);
    }
  };

  // Places in texts_.
  static constexpr uint32_t kUndefined = 0;   // the empty text
  static constexpr uint32_t kOtherPlace = 1;  // "other names"
  static constexpr uint32_t kFirstPlace = 2;  // of the program's texts

  // The place of a text, of its shape, or of "other names".
  uint32_t PlaceFor(const std::string& text, uint32_t id);
  // The place of a text, which is added with this id if it is new and within the limits; else kUndefined.
  uint32_t FindOrAdd(const std::string& text, uint32_t id, size_t max_texts, size_t max_bytes);
  const Text& TextOf(uint32_t id) const {
    if (id < place_of_id_.size()) return texts_[place_of_id_[id]];
    const bool other = id == kOtherNames || (id < kFirstOperationId && IsBeyond(place_of_id_, id));
    return texts_[other ? kOtherPlace : kUndefined];
  }
  // Derives place_of_text_ and text_bytes_ from texts_.
  void Index();

  std::deque<Text> texts_;  // does not move them: place_of_text_ refers to them
  absl::flat_hash_map<std::string_view, uint32_t> place_of_text_;
  size_t text_bytes_ = 0;
  std::vector<uint32_t> place_of_id_;  // by StringDef
  uint64_t other_names_ = 0;
  std::vector<bool> main_thread_;      // by ThreadDef
  std::vector<uint8_t> thread_roles_;  // by ThreadDef
  absl::flat_hash_map<uint32_t, v1::Communicator> communicators_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(place_of_text_, text_bytes_), texts_, place_of_id_, other_names_,
                    main_thread_, thread_roles_, communicators_);
    if constexpr (Archive::kReads) {
      for (const uint32_t place : place_of_id_) archive.Require(place < texts_.size());
      archive.Require(texts_.size() >= kFirstPlace);
      if (!archive.ok()) {
        *this = ProcessNames();
      } else {
        Index();
      }
    }
  }
};

}  // namespace gpuprobe::model
