#include "tests/sim/nccl/meeting.h"

#include <algorithm>
#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/nccl/payload.h"

namespace gpusim::nccl {
namespace {

void RaiseTo(std::atomic<uint64_t>& value, uint64_t at_least) {
  uint64_t seen = value.load();
  while (seen < at_least && !value.compare_exchange_weak(seen, at_least)) {
  }
}

// What an aborted communicator's kernels do: end.
bool EndNow(Communicator& communicator, uint64_t ready_ns, Interval* interval) {
  communicator.EndWait();
  *interval = {ready_ns, std::max(ready_ns, NowNs())};
  return true;
}

}  // namespace

CollectiveMeeting::CollectiveMeeting(CommunicatorPtr communicator, uint64_t ordinal, uint64_t duration_ns,
                                     CallsPtr calls)
    : communicator_(std::move(communicator)),
      ordinal_(ordinal),
      slot_(communicator_->Shared().Meeting(ordinal)),
      key_(ordinal + 1),
      duration_ns_(duration_ns),
      calls_(std::move(calls)) {}

void CollectiveMeeting::Arrive(uint64_t ready_ns) {
  ready_ns_ = ready_ns;
  communicator_->BeginWait();
  communicator_->OpenMailboxes();
  arrived_ = TryArrive();
}

// False while the slot still serves the meeting one round of the ring before.
bool CollectiveMeeting::TryArrive() {
  uint64_t holder = 0;
  if (!slot_.key.compare_exchange_strong(holder, key_) && holder != key_) {
    return false;
  }
  communicator_->Shared().LetterTo(ordinal_, communicator_->Rank()) = Give(
      *calls_, [keep = communicator_->KeepShared(), &slot = slot_, key = key_] { return slot.key != key; });
  RaiseTo(slot_.last_ready_ns, ready_ns_);
  RaiseTo(slot_.duration_ns, duration_ns_);
  slot_.arrived.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

bool CollectiveMeeting::Resolve(Interval* interval) {
  if (communicator_->IsAborted()) {
    return EndNow(*communicator_, ready_ns_, interval);
  }
  arrived_ = arrived_ || TryArrive();
  const auto ranks = static_cast<uint32_t>(communicator_->Ranks());
  if (!arrived_ || slot_.arrived.load(std::memory_order_acquire) != ranks) {
    return false;
  }
  communicator_->EndWait();
  *interval = {ready_ns_, slot_.last_ready_ns + slot_.duration_ns};
  met_ = true;
  return true;
}

void CollectiveMeeting::MoveBytes() {
  if (!met_) return;  // aborted
  Take(*calls_, [this](int rank) {
    return Letter(communicator_->MailboxOf(rank), communicator_->Shared().LetterTo(ordinal_, rank));
  });
  const auto ranks = static_cast<uint32_t>(communicator_->Ranks());
  if (slot_.taken.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) {
    slot_.arrived = 0;
    slot_.taken = 0;
    slot_.last_ready_ns = 0;
    slot_.duration_ns = 0;
    slot_.key.store(0, std::memory_order_release);
  }
}

PeerMeeting::PeerMeeting(CommunicatorPtr communicator, const CallsPtr& calls,
                         const std::vector<uint64_t>& numbers, uint64_t duration_ns)
    : communicator_(std::move(communicator)), duration_ns_(duration_ns) {
  const int rank = communicator_->Rank();
  for (size_t i = 0; i < calls->size(); ++i) {
    const Call& call = (*calls)[i];
    const bool sends = call.operation == Operation::kSend;
    PeerSlot& slot =
        communicator_->Shared().Peer(sends ? rank : call.peer, sends ? call.peer : rank, numbers[i]);
    messages_.push_back(Message{.call = call,
                                .own = sends ? &slot.sender : &slot.receiver,
                                .other = sends ? &slot.receiver : &slot.sender,
                                .tag = numbers[i] + 1});
  }
}

void PeerMeeting::Arrive(uint64_t ready_ns) {
  ready_ns_ = ready_ns;
  communicator_->BeginWait();
  communicator_->OpenMailboxes();
  last_ready_ns_ = ready_ns;
  for (Message& message : messages_) {
    Advance(message);
  }
}

void PeerMeeting::Advance(Message& message) {
  if (!message.arrived) {
    // The slot's message of one round before must have been seen by the other side.
    const uint64_t before = message.tag > kPeerSlots ? message.tag - kPeerSlots : 0;
    if (message.other->seen.load(std::memory_order_acquire) < before) {
      return;
    }
    message.own->letter =
        Give({message.call}, [keep = communicator_->KeepShared(), &seen = message.other->seen,
                              tag = message.tag] { return seen >= tag; });
    message.own->ready_ns = ready_ns_;
    message.own->tag.store(message.tag, std::memory_order_release);
    message.arrived = true;
  }
  if (!message.met && message.other->tag.load(std::memory_order_acquire) == message.tag) {
    last_ready_ns_ = std::max(last_ready_ns_, message.other->ready_ns.load());
    if (message.call.operation == Operation::kSend) RaiseTo(message.own->seen, message.tag);
    message.met = true;
  }
}

void PeerMeeting::MoveBytes() {
  for (const Message& message : messages_) {
    if (message.call.operation == Operation::kSend || !message.met) continue;
    Take({message.call}, [this, &message](int rank) {
      return Letter(communicator_->MailboxOf(rank), message.other->letter);
    });
    RaiseTo(message.own->seen, message.tag);
  }
}

bool PeerMeeting::Resolve(Interval* interval) {
  if (communicator_->IsAborted()) {
    return EndNow(*communicator_, ready_ns_, interval);
  }
  bool all_met = true;
  for (Message& message : messages_) {
    Advance(message);
    all_met = all_met && message.met;
  }
  if (!all_met) {
    return false;
  }
  communicator_->EndWait();
  *interval = {ready_ns_, last_ready_ns_ + duration_ns_};
  return true;
}

BothMeetings::BothMeetings(std::shared_ptr<Rendezvous> one, std::shared_ptr<Rendezvous> other) {
  parts_[0].meeting = std::move(one);
  parts_[1].meeting = std::move(other);
}

void BothMeetings::Arrive(uint64_t ready_ns) {
  for (Part& part : parts_) part.meeting->Arrive(ready_ns);
}

void BothMeetings::MoveBytes() {
  for (Part& part : parts_) part.meeting->MoveBytes();
}

bool BothMeetings::Resolve(Interval* interval) {
  for (Part& part : parts_) part.over = part.over || part.meeting->Resolve(&part.interval);
  if (!parts_[0].over || !parts_[1].over) return false;
  *interval = {parts_[0].interval.start_ns, std::max(parts_[0].interval.end_ns, parts_[1].interval.end_ns)};
  return true;
}

}  // namespace gpusim::nccl
