// Python's functions in which threads of a process were seen, by HostFrame id.
//
// A chain of frames is a stack; what is kept of it here is what reports say: the innermost function, the
// innermost one of the program's own, and what the stack is there for. Bounded by kMaxFrames; one beyond is
// not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/host_places.h"
#include "collector/records/bounds.h"
#include "collector/records/process_names.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class HostFrames {
 public:
  struct Frame {
    HostLine at;
    HostLine own;  // this one, or the next outer one that is the program's own; function 0: none
    HostTask task = HostTask::kUnknown;  // of the innermost function, from this one on, whose name shows it

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, at, own, task);
    }
  };

  // Its caller and its names come before it. An id keeps its meaning.
  void On(const v1::HostFrame& def, const ProcessNames& names);
  // One without a function for an unknown id.
  const Frame& Of(uint32_t id) const { return id < frames_.size() ? frames_[id] : unknown_; }

 private:
  std::vector<Frame> frames_;  // by id
  Frame unknown_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(unknown_), frames_);
    archive.Require(frames_.size() <= kMaxFrames);
  }
};

}  // namespace gpuprobe::model
