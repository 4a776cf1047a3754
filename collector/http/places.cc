#include "collector/http/places.h"

namespace gpuprobe::http {

bool Places::Add(Counts& counts, const Peer& peer, size_t most) {
  const auto its = counts.try_emplace(peer.name, 0).first;
  if (its->second >= most) return false;
  ++its->second;
  return true;
}

void Places::Subtract(Counts& counts, const Peer& peer) {
  const auto its = counts.find(peer.name);
  if (its != counts.end() && --its->second == 0) counts.erase(its);
}

bool Places::TakePlace(const Peer& peer) {
  if (taken_ >= kMost) return false;
  if (!peer.is_owner) {
    if (others_ >= kMostOfOthers || !Add(of_peer_, peer, most_of_peer_)) return false;
    ++others_;
  }
  ++taken_;
  return true;
}

Places::Admission Places::Take(const Peer& peer) {
  if (TakePlace(peer)) return Admission::kPlace;
  if (!Add(brief_of_peer_, peer, kMostBriefOfPeer)) return Admission::kRefused;
  ++brief_;
  return Admission::kBrief;
}

void Places::Leave(const Peer& peer, Admission admission) {
  if (admission == Admission::kBrief) {
    Subtract(brief_of_peer_, peer);
    --brief_;
  } else if (admission == Admission::kPlace) {
    --taken_;
    if (peer.is_owner) return;
    Subtract(of_peer_, peer);
    --others_;
  }
}

}  // namespace gpuprobe::http
