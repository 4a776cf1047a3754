#include "collector/model/calls/transfers.h"

namespace gpuprobe::model {

void Transfers::Issued(const CollectiveRecord& record) {
  const Key key{record.comm, record.peer, record.op};
  if (peers_.size() >= kMaxPeers && !peers_.contains(key)) return;
  Peer& peer = peers_[key];
  peer.open.push_back({.number = peer.issued++,
                       .seq = record.seq,
                       .plan = record.plan,
                       .issue_ns = record.issue_ns,
                       .count = record.count,
                       .element_bytes = record.element_bytes,
                       .datatype = record.datatype});
  if (peer.open.size() > kMaxOpen) peer.open.pop_front();
}

void Transfers::Finished(const Key& key, uint64_t seq) {
  const auto found = peers_.find(key);
  if (found == peers_.end()) return;
  std::deque<Open>& open = found->second.open;
  while (!open.empty() && open.front().seq <= seq) open.pop_front();
}

void Transfers::Captured(const Key& key, uint64_t seq) {
  const auto found = peers_.find(key);
  if (found != peers_.end())
    std::erase_if(found->second.open, [&](const Open& open) { return open.seq == seq; });
}

}  // namespace gpuprobe::model
