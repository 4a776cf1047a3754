// Decides who gets one of the server's connections, so that no user can take them all.
//
// Example: mallory opens connections as fast as she can. She gets kMostOfPeer. With twenty users she gets
// kMostOfOthers in all; the rest is kept for the owner of the run. A client without a place is admitted
// briefly: long enough to ask for /healthz. Each peer may have kMostBriefOfPeer such connections at a time;
// when there are kMostBrief, a new one displaces the oldest.
//
// Used by the accepting thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "collector/http/peer.h"

namespace gpuprobe::http {

class Places {
 public:
  static constexpr size_t kMost = 160;
  // Limits for all peers but the owner together, and for each of them.
  static constexpr size_t kMostOfOthers = 120;
  static constexpr size_t kMostOfPeer = 60;

  static constexpr size_t kMostBrief = 32;
  static constexpr size_t kMostBriefOfPeer = 4;

  // `most_of_peer`: of one peer, if that is less.
  explicit Places(size_t most_of_peer = kMostOfPeer) : most_of_peer_(most_of_peer) {}

  enum class Admission : uint8_t { kPlace, kBrief, kRefused };
  Admission Take(const Peer& peer);
  void Leave(const Peer& peer, Admission admission);
  // True if there are more brief connections than allowed: displace the oldest.
  bool HasTooManyBrief() const { return brief_ > kMostBrief; }

 private:
  using Counts = std::map<std::string, size_t>;
  bool TakePlace(const Peer& peer);
  // False: the peer has `most` already.
  static bool Add(Counts& counts, const Peer& peer, size_t most);
  static void Subtract(Counts& counts, const Peer& peer);

  const size_t most_of_peer_;
  size_t taken_ = 0;
  size_t others_ = 0;
  size_t brief_ = 0;
  Counts of_peer_;  // not of the owner
  Counts brief_of_peer_;
};

}  // namespace gpuprobe::http
