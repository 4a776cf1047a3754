// Sends and receives that one process issued, by peer and direction, and which of them may still be running.
//
// Unlike a collective's, the sequence number of a transfer says nothing about other ranks. Two ranks agree
// only on the order: the n-th send from one to the other is the n-th receive there. Transfers of one pair and
// direction run one after another, so one that is over ends those before it. Memory: those that are not over,
// bounded; beyond, the oldest is forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "collector/model/state/members.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class Transfers {
 public:
  static constexpr size_t kMaxOpen = 512;  // of one peer and direction
  static constexpr size_t kMaxPeers = 65536;

  using Key = std::tuple<uint32_t, int32_t, uint32_t>;  // Communicator.id, peer, operation's StringDef

  struct Open {
    uint64_t number = 0;  // of this key, from 0
    uint64_t seq = 0;
    uint64_t plan = 0;
    uint64_t issue_ns = 0;
    uint64_t count = 0;
    uint32_t element_bytes = 0;
    uint32_t datatype = 0;  // StringDef

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, number, seq, plan, issue_ns, count, element_bytes, datatype);
    }
  };
  struct Peer {
    uint64_t issued = 0;
    std::deque<Open> open;  // in the order of issue

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, issued, open);
    }
  };

  void Issued(const CollectiveRecord& record);
  void Finished(const Key& key, uint64_t seq);
  // The transfer was captured into a CUDA graph, so it is issued only at graph launches, which are not
  // reported here.
  void Captured(const Key& key, uint64_t seq);

  const std::map<Key, Peer>& peers() const { return peers_; }

 private:
  std::map<Key, Peer> peers_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, peers_);
  }
};

}  // namespace gpuprobe::model
