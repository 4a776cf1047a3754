#include "collector/analysis/communication/exchanges.h"

#include <algorithm>
#include <set>

#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

// A send made less than once in two steps is not part of the training: weights that are sent around, a check.
constexpr double kLeastPerStep = 0.5;
// A stage has at most two neighbours.
constexpr uint32_t kMorePeers = 3;

struct Sent {
  uint64_t sends = 0;
  uint64_t receives = 0;
  std::set<int32_t> to;
  std::set<int32_t> from;
};

bool IsMany(const model::TransferShapes& shapes) { return shapes.with_itself || shapes.peers >= kMorePeers; }

}  // namespace

Exchanges::Exchanges(const model::JobModel& job) {
  for (uint32_t i = 0; i < job.processes().size(); ++i) Count(i, *job.processes()[i]);
  FindRings();
}

void Exchanges::FindRings() {
  std::map<uint32_t, Link> links;
  std::set<uint32_t> several;  // processes with more than one link from them
  for (const auto& [hash, use] : by_hash_) {
    if (use.ranks != 2 || !use.sender.has_value() || !use.receiver.has_value()) continue;
    if (!links.try_emplace(*use.sender, Link{.hash = hash, .to = *use.receiver, .sends = use.sends}).second)
      several.insert(*use.sender);
  }
  for (const auto& [first, link] : links) {
    if (by_hash_[link.hash].goes_round) continue;  // found from another rank of the ring
    std::set<uint64_t> ring;
    uint32_t at = first;
    for (auto next = links.find(at); next != links.end() && !several.contains(at); next = links.find(at)) {
      if (next->second.sends != link.sends || !ring.insert(next->second.hash).second) break;
      at = next->second.to;
    }
    if (at != first) continue;
    for (const uint64_t hash : ring) by_hash_[hash].goes_round = true;
  }
}

void Exchanges::Count(uint32_t index, const model::ProcessModel& process) {
  std::map<uint32_t, Sent> by_comm;
  std::map<uint32_t, uint64_t> alone;  // plans
  std::set<uint32_t> many;
  for (const auto& series : process.collectives().series()) {
    if (series->shapes.one_way + series->shapes.both_ways == 0) continue;
    alone[series->comm] += series->shapes.one_way;
    if (IsMany(series->shapes)) many.insert(series->comm);
  }
  if (alone.empty()) return;
  for (const auto& [key, peer] : process.collectives().transfers().peers()) {
    const auto& [comm, rank, op] = key;
    Sent& sent = by_comm[comm];
    const bool sends = nccl::IsSend(process.String(op));
    (sends ? sent.sends : sent.receives) += peer.issued;
    (sends ? sent.to : sent.from).insert(rank);
  }
  const auto steps = static_cast<double>(process.steps().count());
  for (const auto& [id, plans] : alone) {
    const v1::Communicator* comm = process.FindCommunicator(id);
    if (comm == nullptr) continue;
    Use& use = by_hash_[comm->hash()];
    const Sent& sent = by_comm[id];
    use.alone = use.alone || static_cast<double>(plans) > kLeastPerStep * steps;
    use.many = use.many || many.contains(id);
    std::set<int32_t> neighbours = sent.to;
    neighbours.insert(sent.from.begin(), sent.from.end());
    neighbours.erase(comm->rank());
    use.neighbours = std::max(use.neighbours, neighbours.size());
    const bool passes_on =
        sent.sends == sent.receives && sent.to.size() == 1 && sent.from.size() == 1 && sent.to != sent.from;
    use.goes_round = use.goes_round && passes_on && (use.ranks == 0 || use.sends == sent.sends);
    use.sends = std::max(use.sends, sent.sends);
    if (sent.receives == 0) use.sender = index;
    if (sent.sends == 0) use.receiver = index;
    ++use.ranks;
  }
}

TransferPattern Exchanges::Of(const Use& use) {
  if (!use.alone || use.goes_round) return TransferPattern::kRing;
  return !use.many && use.neighbours >= kMorePeers ? TransferPattern::kStar : TransferPattern::kPipeline;
}

TransferPattern Exchanges::Of(const model::ProcessModel& process,
                              const model::CollectiveSeries& series) const {
  const model::TransferShapes& shapes = series.shapes;
  if (shapes.one_way + shapes.both_ways == 0) return TransferPattern::kNone;
  if (IsMany(shapes)) return TransferPattern::kExchange;
  const v1::Communicator* comm = process.FindCommunicator(series.comm);
  const auto found = by_hash_.find(comm == nullptr ? 0 : comm->hash());
  if (found == by_hash_.end()) return TransferPattern::kPipeline;
  const TransferPattern pattern = Of(found->second);
  return pattern == TransferPattern::kRing && shapes.mutual > 1 ? TransferPattern::kExchange : pattern;
}

}  // namespace gpuprobe::analysis
