#include "collector/model/calls/issued_calls.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

// Nearly always all calls are there, one after the other.
std::deque<IssuedCalls::Call>::iterator PlaceOf(std::deque<IssuedCalls::Call>& calls, uint64_t seq) {
  if (!calls.empty() && seq >= calls.front().seq) {
    const uint64_t place = seq - calls.front().seq;
    if (place < calls.size() && calls[place].seq == seq) return calls.begin() + static_cast<ptrdiff_t>(place);
  }
  return std::lower_bound(calls.begin(), calls.end(), seq,
                          [](const IssuedCalls::Call& call, uint64_t wanted) { return call.seq < wanted; });
}

}  // namespace

void IssuedCalls::Join(uint64_t hash, int32_t ranks, int32_t comm_rank, uint32_t process) {
  if (hash == 0 || ranks <= 0 || ranks > kMaxRanks || comm_rank < 0 || comm_rank >= ranks) return;
  Communicator& comm = communicators_[hash];
  if (comm.ranks.size() < static_cast<size_t>(ranks)) comm.ranks.resize(static_cast<size_t>(ranks));
  RankState& state = comm.ranks[static_cast<size_t>(comm_rank)];
  if (state.process == process) return;
  if (state.process != kNoProcess) {
    // Another process in the same place: the program was started again, and counts from 0 again.
    while (!comm.calls.empty()) DropFront(hash, comm);
    comm.finished = comm.heard = 0;
    comm.ranks.assign(comm.ranks.size(), {});
  }
  comm.ranks[static_cast<size_t>(comm_rank)].process = process;
  ++comm.heard;
}

const IssuedCalls::Call* IssuedCalls::Issued(uint64_t hash, int32_t comm_rank, uint64_t seq,
                                             const Signature& signature, const Issue& issue) {
  const auto found = communicators_.find(hash);
  if (found == communicators_.end()) return nullptr;
  Communicator& comm = found->second;
  if (comm_rank < 0 || static_cast<size_t>(comm_rank) >= comm.ranks.size()) return nullptr;
  RankState& state = comm.ranks[static_cast<size_t>(comm_rank)];
  if (state.process == kNoProcess) return nullptr;
  state.next_seq = std::max(state.next_seq, seq + 1);
  // Over, and dropped already: what comes first now is what is compared.
  if (seq < comm.finished && (comm.calls.empty() || seq < comm.calls.front().seq)) return nullptr;
  auto at = PlaceOf(comm.calls, seq);
  if (at == comm.calls.end() || at->seq != seq) {
    if (comm.calls.size() >= kMaxCalls) {
      DropFront(hash, comm);
      at = PlaceOf(comm.calls, seq);
    }
    at = comm.calls.insert(at, Call{.seq = seq, .signatures = {}, .issues = {}});
    at->issues.reserve(comm.ranks.size());
  }
  if (at->issues.size() >= comm.ranks.size()) return nullptr;
  const auto same = std::find(at->signatures.begin(), at->signatures.end(), signature);
  at->issues.push_back(issue);
  at->issues.back().comm_rank = comm_rank;
  at->issues.back().signature = static_cast<uint32_t>(same - at->signatures.begin());
  if (same == at->signatures.end()) at->signatures.push_back(signature);
  const Call* call = &*at;
  const bool by_all = call->issues.size() == comm.ranks.size();
  DropOver(hash, comm);
  return by_all && !comm.calls.empty() && comm.calls.front().seq <= seq ? call : nullptr;
}

void IssuedCalls::Finished(uint64_t hash, uint64_t seq) {
  const auto found = communicators_.find(hash);
  if (found == communicators_.end() || seq < found->second.finished) return;
  found->second.finished = seq + 1;
  DropOver(hash, found->second);
}

void IssuedCalls::DropFront(uint64_t hash, Communicator& comm) {
  // The first mismatches matter most: later ones follow from them.
  if (comm.calls.front().signatures.size() > 1 && mismatched_.size() < kMaxMismatched) {
    mismatched_.push_back({.hash = hash, .call = std::move(comm.calls.front())});
  }
  comm.calls.pop_front();
}

void IssuedCalls::DropOver(uint64_t hash, Communicator& comm) {
  while (!comm.calls.empty() && comm.calls.front().seq < comm.finished &&
         (comm.calls.front().issues.size() >= comm.ranks.size() || comm.calls.size() > kMaxOver)) {
    DropFront(hash, comm);
  }
}

std::vector<IssuedCalls::Mismatched> IssuedCalls::Mismatches() const {
  std::vector<Mismatched> all(mismatched_.begin(), mismatched_.end());
  for (const auto& [hash, comm] : communicators_) {
    for (const Call& call : comm.calls) {
      if (call.signatures.size() > 1 && all.size() < kMaxMismatched) all.push_back({hash, call});
    }
  }
  return all;
}

}  // namespace gpuprobe::model
