// Finds out what the nodes of executable graphs carry from their records: since 13.4 a record names the node
// that its node was instantiated or last updated from.
//
// That is the only way for nodes of child graphs: CUPTI reports copies of them that never run, and never the
// ids that run (docs/real-hardware.md). A child's node 12 that carries an NCCL call was copied into a graph
// as node 27; records of node 31 with the source 27 are that call's.
//
// Thread: the decoding one, under the stream's lock. Allocation: one mapping at Init; pages come with records
// of graphs. Records of one node may come in any order: what a node carries is reported as of the oldest
// launch that has shown it, and again if an older one turns up. Failure: without the mapping, and before
// 13.4, such kernels are known by their names only. When two nodes hash to one place, the older one is
// forgotten, and reported again at its next record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/base/mapping.h"
#include "injector/rows/batch_builder.h"

namespace gpuprobe::injector {

class NodeSources {
 public:
  static constexpr uint32_t kSinceVersion = 130400;
  // Where the source's id is in a record of that release, and of newer ones.
  static constexpr size_t kInKernel = 240;
  static constexpr size_t kInCopy = 104;

  void Init() noexcept { static_cast<void>(memory_.Map(kPlaces * sizeof(Place))); }

  // A record of a graph's node; `record` is long enough to have the source at `at`.
  void Note(const void* record, size_t at, uint64_t node, uint32_t correlation,
            BatchBuilder* builder) noexcept;

 private:
  static constexpr int kHashBits = 12;
  static constexpr size_t kPlaces = size_t{1} << kHashBits;
  struct Place {
    uint64_t node;
    uint64_t source;
    uint32_t first;  // oldest launch that ran it with this source
    bool told;       // its plan was reported at least once
  };

  Mapping memory_;
};

}  // namespace gpuprobe::injector
