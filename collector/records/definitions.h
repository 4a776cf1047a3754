// What a process's records refer to by id: names, kernels with their launch geometry, threads, streams,
// devices and communicators. For those who read a log again; the model keeps less (process_names.h).
//
// Definitions come before their first use. An id keeps its meaning, and none is forgotten: memory grows with
// the number of distinct names. Pointers stay valid.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/records/collective_kernels.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

// A kernel in one launch geometry on one stream.
struct Site {
  v1::KernelSite geometry;
  std::string_view operation;                    // OperationOfKernel of its name
  KernelNature nature = KernelNature::kCompute;  // by its name
};

struct Thread {
  uint32_t tid = 0;
  bool main = false;
  std::string name;  // the program's, else the system's
};

class Definitions {
 public:
  // How names are written: as they are, as UTF-8, as JSON.
  using Spelling = std::string (*)(std::string_view name);
  explicit Definitions(Spelling spelling = [](std::string_view name) { return std::string(name); })
      : spelling_(spelling), nameless_{spelling({}), {}, KernelNature::kCompute} {}

  void Learn(const v1::Batch& batch);

  // The empty name for an unknown id.
  const std::string& String(uint32_t id) const { return NameOf(id).spelled; }
  bool Knows(uint32_t id) const { return id < strings_.size() && strings_[id] != nullptr; }
  // nullptr for an unknown id.
  const Site* FindSite(uint32_t id) const { return id < sites_.size() ? sites_[id] : nullptr; }
  const Thread* FindThread(uint32_t id) const;
  const v1::Communicator* FindCommunicator(uint32_t id) const;
  // nullptr for an unknown id, as 0. Its caller has a lower id.
  const v1::HostFrame* FindFrame(uint32_t id) const;
  // StringDefs of the names that the program gave; 0: none.
  uint32_t NameOfDevice(uint32_t ordinal) const { return Find(device_names_, {0, ordinal}); }
  uint32_t NameOfStream(uint32_t context, uint32_t stream) const {
    return Find(stream_names_, {context, stream});
  }
  uint32_t NameOfCategory(uint32_t domain, uint32_t category) const {
    return Find(category_names_, {domain, category});
  }
  // Records may have names of unloaded kernels.
  bool names_are_uncertain() const { return names_are_uncertain_; }

 private:
  using Names = absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t>;
  static uint32_t Find(const Names& names, std::pair<uint32_t, uint32_t> key) {
    const auto found = names.find(key);
    return found == names.end() ? 0 : found->second;
  }
  struct Name {
    std::string spelled;
    std::string_view operation;  // as a kernel's
    KernelNature nature = KernelNature::kCompute;
  };
  const Name& NameOf(uint32_t id) const { return Knows(id) ? *strings_[id] : nameless_; }

  Spelling spelling_;
  Name nameless_;
  std::deque<Name> names_;
  std::vector<const Name*> strings_;  // by StringDef
  std::deque<Site> known_sites_;
  std::vector<const Site*> sites_;  // by KernelSite
  std::map<uint32_t, Thread> threads_;
  std::vector<v1::HostFrame> frames_;  // by id
  Names device_names_;                 // by 0 and ordinal
  Names stream_names_;                 // by context and stream
  Names category_names_;               // by domain and category
  std::map<uint32_t, v1::Communicator> communicators_;
  bool names_are_uncertain_ = false;
};

}  // namespace gpuprobe::model
