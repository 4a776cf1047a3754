#include "injector/rows/self_fields.h"

#include <algorithm>
#include <string_view>

#include "injector/base/memory_account.h"
#include "injector/core/event_names.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector {

namespace {

void EncodeLaunchCost(WireWriter& self) noexcept {
  const uint64_t launches = SelfCount(SelfCounter::kLaunches);
  if (launches == 0) return;
  WireWriter cost(self, Number(wire::SelfReportTag::kLaunchCost));
  cost.add_uint64(Number(wire::LaunchCostTag::kLaunches), launches);
  cost.add_uint64(Number(wire::LaunchCostTag::kLaunchNs), SelfCount(SelfCounter::kLaunchNs));
}

void EncodeUnknownFunctions(WireWriter& self) noexcept {
  using Tag = wire::SelfReportTag;
  uint32_t imports = 0;
  for (size_t i = 0; event_names.unknown_function != nullptr; ++i) {
    const std::string_view name = event_names.unknown_function(i, &imports);
    if (name.empty()) break;
    WireWriter function(self, Number(Tag::kUnknownFunctions));
    function.add_bytes(Number(wire::UnknownFunctionTag::kName), name.data(), name.size());
    function.add_uint32(Number(wire::UnknownFunctionTag::kImports), imports);
  }
  if (event_names.other_unknown_functions != nullptr) {
    if (const uint32_t others = event_names.other_unknown_functions(); others != 0)
      self.add_uint32(Number(Tag::kOtherUnknownFunctions), others);
  }
}

}  // namespace

void UnrecordedCounts::SmallCopy(wire::CopyDirection direction, uint64_t bytes,
                                 uint64_t duration_ns) noexcept {
  const auto index = static_cast<size_t>(direction);
  Copies& small = small_copies_[index < kDirections ? index : 0];
  ++small.copies;
  small.bytes += bytes;
  small.duration_ns += duration_ns;
}

void UnrecordedCounts::UnknownKind(uint32_t kind) noexcept {
  size_t i = 0;
  while (i < unknown_kind_count_ && unknown_kinds_[i].kind != kind) ++i;
  if (i == kMaxUnknownKinds) i = kMaxUnknownKinds - 1;
  if (i == unknown_kind_count_) {
    ++unknown_kind_count_;
    unknown_kinds_[i].kind = kind;
  }
  ++unknown_kinds_[i].records;
}

void UnrecordedCounts::Encode(WireWriter& self) const noexcept {
  using Tag = wire::SelfReportTag;
  for (size_t i = 0; i < unknown_kind_count_; ++i) {
    WireWriter unknown(self, Number(Tag::kUnknownKinds));
    unknown.add_uint32(Number(wire::UnknownKindTag::kKind), unknown_kinds_[i].kind);
    unknown.add_uint64(Number(wire::UnknownKindTag::kRecords), unknown_kinds_[i].records);
  }
  for (size_t i = 0; i < kDirections; ++i) {
    const Copies& small = small_copies_[i];
    if (small.copies == 0) continue;
    WireWriter copies(self, Number(Tag::kSmallCopies));
    copies.add_enum(Number(wire::SmallCopiesTag::kDirection), static_cast<int32_t>(i));
    copies.add_uint64(Number(wire::SmallCopiesTag::kCopies), small.copies);
    copies.add_uint64(Number(wire::SmallCopiesTag::kBytes), small.bytes);
    copies.add_uint64(Number(wire::SmallCopiesTag::kDurationNs), small.duration_ns);
  }
}

void EncodeSelf(WireWriter& batch, const UnrecordedCounts& counts, uint64_t records,
                uint64_t batches) noexcept {
  using Tag = wire::SelfReportTag;
  const HostCost cost = TotalHostCost();
  WireWriter self(batch, Number(wire::BatchTag::kSelf));
  self.add_uint64(Number(Tag::kHostNs), cost.estimated_ns());
  self.add_uint32(Number(Tag::kHostSampling), kHostCostSampling);
  self.add_uint64(Number(Tag::kHostEvents), cost.events);
  self.add_uint64(Number(Tag::kBackgroundCpuNs), BackgroundCpuNs());
  self.add_uint64(Number(Tag::kBytesSent), BytesSent());
  self.add_uint64(Number(Tag::kMemoryPeakBytes), PeakMemory());
  self.add_uint64(Number(Tag::kMemoryLimitBytes), MemoryLimit());
  self.add_uint64(Number(Tag::kRangePopWithoutPush), SelfCount(SelfCounter::kRangePopWithoutPush));
  self.add_uint64(Number(Tag::kRangeEndWithoutStart), SelfCount(SelfCounter::kRangeEndWithoutStart));
  self.add_uint64(Number(Tag::kCuptiErrors), SelfCount(SelfCounter::kCuptiErrors));
  self.add_uint64(Number(Tag::kRelocationsPatched), SelfCount(SelfCounter::kRelocationsPatched));
  self.add_uint64(Number(Tag::kRecords), records);
  self.add_uint64(Number(Tag::kBatches), batches);
  self.add_int32(Number(Tag::kLastCuptiError), LastCuptiError());
  self.add_uint64(Number(Tag::kRecordsOutsideWindow), SelfCount(SelfCounter::kOutsideWindow));
  self.add_uint64(Number(Tag::kLeftOutUntilNs), std::max(LeftOutUntilNs(), step_gate.left_out_until_ns()));
  if (step_gate.in_use()) self.add_uint64(Number(Tag::kStepsBegun), step_gate.steps_begun());
  self.add_uint64(Number(Tag::kHostTimeErrorNs), host_clock.max_error_ns());
  self.add_uint64(Number(Tag::kHostClockFallbacks), host_clock.fallbacks());
  const DetailReport detail = CurrentDetailReport();
  self.add_enum(Number(Tag::kDetailLevel), detail.level);
  self.add_uint64(Number(Tag::kDetailReductions), detail.reductions);
  self.add_uint64(Number(Tag::kReducedNs), detail.reduced_ns);
  self.add_uint64(Number(Tag::kYields), detail.yields);
  self.add_uint64(Number(Tag::kYieldedNs), detail.yielded_ns);
  EncodeLaunchCost(self);
  EncodeUnknownFunctions(self);
  counts.Encode(self);
}

static void EncodeCreation(WireWriter& state, wire::HostStateTag tag, const CreationRow& row) noexcept {
  using Tag = wire::CommunicatorCreationTag;
  if (!row.known) return;
  WireWriter fields(state, Number(tag));
  fields.add_fixed64(Number(Tag::kHash), row.facts.hash);
  fields.add_fixed64(Number(Tag::kParent), row.facts.parent);
  fields.add_int32(Number(Tag::kRank), row.facts.rank);
  fields.add_int32(Number(Tag::kRanks), row.facts.ranks);
  fields.add_uint32(Number(Tag::kMadeBy), row.made_by);
  fields.add_fixed64(Number(Tag::kSinceNs), row.facts.since_ns);
  fields.add_sint32(Number(Tag::kResult), row.facts.result);
}

void EncodeCapture(WireWriter& batch, const CaptureRow& capture) noexcept {
  using Tag = wire::CaptureStateTag;
  WireWriter fields(batch, Number(wire::BatchTag::kCapture));
  fields.add_uint64(Number(Tag::kId), capture.id);
  fields.add_enum(Number(Tag::kPhase), static_cast<int32_t>(capture.phase));
  fields.add_enum(Number(Tag::kClock), static_cast<int32_t>(capture.clock));
  fields.add_uint32(Number(Tag::kHasMarker), capture.has_marker ? 1 : 0);
  fields.add_uint64(Number(Tag::kStepsBegun), capture.steps_begun);
  fields.add_fixed64(Number(Tag::kCommunicator), capture.communicator);
  fields.add_uint32(Number(Tag::kCommunicatorRanks), capture.communicator_ranks);
  fields.add_uint64(Number(Tag::kCalls), capture.calls);
  fields.add_uint32(Number(Tag::kCallsPerStep), capture.calls_per_step);
  fields.add_uint64(Number(Tag::kStepCall), capture.step_call);
  fields.add_uint64(Number(Tag::kSteps), capture.steps);
}

void EncodeHostState(WireWriter& batch, const HostStateRow& state) noexcept {
  using Tag = wire::HostStateTag;
  WireWriter fields(batch, Number(wire::BatchTag::kHostState));
  for (size_t i = state.open_range_count; i > 0; --i)
    fields.add_uint32(Number(Tag::kOpenRanges), state.open_ranges[i - 1]);
  fields.add_uint64(Number(Tag::kIoBytes), state.io_bytes);
  if (state.last_wait_end_ns != 0) fields.add_fixed64(Number(Tag::kLastWaitEndNs), state.last_wait_end_ns);
  EncodeCreation(fields, Tag::kCreating, state.creating);
  EncodeCreation(fields, Tag::kRefused, state.refused);
  if (state.blocked_in == 0) return;
  fields.add_uint32(Number(Tag::kBlockedIn), state.blocked_in);
  fields.add_fixed64(Number(Tag::kBlockedSinceNs), state.blocked_since_ns);
}

}  // namespace gpuprobe::injector
