#include "tests/sim/nccl/plan.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/nccl/meeting.h"
#include "tests/sim/nccl/profiler.h"

namespace gpusim::nccl {
namespace {

std::atomic<uint64_t> plans_launched{0};
constexpr uint64_t kForeverNs = 3'000'000'000'000'000'000;  // 95 years

bool IsSamePlan(const Call& a, const Call& b, bool fuse_all) {
  return a.communicator == b.communicator &&
         (fuse_all || KernelName(a.operation, a.type) == KernelName(b.operation, b.type));
}

bool RunsAsMessages(const Call& call) {
  return KernelName(call.operation, call.type) == KernelName(Operation::kSend, call.type);
}

// What the factory needs for each instance: a launch, or a replay of a graph that captured it.
struct PlanState {
  CommunicatorPtr communicator;
  CallsPtr collectives;  // null: none
  CallsPtr messages;
  uint64_t duration_ns = 0;
};

CallsPtr CallsThat(bool are_messages, const std::vector<Call>& calls) {
  std::vector<Call> found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found),
               [are_messages](const Call& call) { return IsPointToPoint(call.operation) == are_messages; });
  return found.empty() ? nullptr : std::make_shared<const std::vector<Call>>(std::move(found));
}

std::shared_ptr<Rendezvous> MakeMeeting(void* opaque) {
  const auto& state = *static_cast<const PlanState*>(opaque);
  Communicator& communicator = *state.communicator;
  std::shared_ptr<Rendezvous> all;
  if (state.collectives != nullptr) {
    all = std::make_shared<CollectiveMeeting>(state.communicator, communicator.NextMeeting(),
                                              state.duration_ns, state.collectives);
    if (state.messages == nullptr) return all;
  }
  std::vector<uint64_t> numbers;
  for (const Call& call : *state.messages) {
    numbers.push_back(call.operation == Operation::kSend ? communicator.NextMessageTo(call.peer)
                                                         : communicator.NextMessageFrom(call.peer));
  }
  auto peers = std::make_shared<PeerMeeting>(state.communicator, state.messages, numbers, state.duration_ns);
  if (all == nullptr) return peers;
  return std::make_shared<BothMeetings>(std::move(all), std::move(peers));
}

CollectiveTruth TruthOf(const Call& call, uint64_t plan) {
  CollectiveTruth truth;
  truth.op = OperationName(call.operation);
  truth.comm = call.communicator->HashText();
  truth.seq = call.sequence;
  truth.comm_rank = call.communicator->Rank();
  truth.comm_ranks = call.communicator->Ranks();
  truth.count = call.count;
  truth.datatype = TypeName(call.type);
  truth.bytes = call.count * TypeSize(call.type);
  truth.reduction = ReductionName(call.operation, call.reduction);
  truth.root = call.root;
  truth.peer = call.peer;
  truth.issue_ns = call.issue_ns;
  truth.plan = plan;
  if (IsOneCollective(call.operation)) {
    const HowItRuns how = HowToRun(call.operation, truth.bytes);
    truth.algorithm = how.algorithm;
    truth.protocol = how.protocol;
    truth.channels = how.channels;
  }
  return truth;
}

}  // namespace

void LogWithoutKernel(const Call& call, ncclResult_t result) {
  LogCallWithoutKernel(TruthOf(call, 0), result);
}

namespace {

// The other streams of a plan wait for its kernel, and it for what was issued to them.
class OtherStreams {
 public:
  explicit OtherStreams(const Plan& plan) : first_(plan.calls.front().stream) {
    for (const Call& call : plan.calls) {
      if (call.stream != first_ &&
          std::find(streams_.begin(), streams_.end(), call.stream) == streams_.end()) {
        streams_.push_back(call.stream);
      }
    }
  }
  void Before() const {
    for (CUstream stream : streams_) {
      Order(stream, first_);
    }
  }
  void After() const {
    for (CUstream stream : streams_) {
      Order(first_, stream);
    }
  }

 private:
  static void Order(CUstream earlier, CUstream later) {
    CUevent event = nullptr;
    if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
      cuEventRecord(event, earlier);
      cuStreamWaitEvent(later, event, 0);
      cuEventDestroy(event);
    }
  }

  const CUstream first_;
  std::vector<CUstream> streams_;
};

}  // namespace

bool IsCaptured(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(stream, &capture);
  return capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool FusesAll() {
  static const bool kOne = [] {
    const char* text = std::getenv("GPUSIM_NCCL_PLANS");
    if (text == nullptr) return false;
    if (std::strcmp(text, "one") == 0) return true;
    std::fprintf(stderr, "gpusim: GPUSIM_NCCL_PLANS=%s is not one\n", text);
    std::exit(64);
  }();
  return kOne;
}

std::vector<Plan> MakePlans(const std::vector<Call>& calls, bool fuse_all) {
  std::vector<Plan> plans;
  for (const Call& call : calls) {
    const auto same = std::find_if(plans.begin(), plans.end(), [&call, fuse_all](const Plan& plan) {
      return IsSamePlan(plan.calls.front(), call, fuse_all);
    });
    if (same != plans.end()) {
      same->calls.push_back(call);
    } else {
      plans.push_back(Plan{call.communicator, {call}, 0});
    }
  }
  // By communicator, collectives first: the order in which the real library drains its queues.
  std::vector<CommunicatorPtr> order;
  for (const Plan& plan : plans) {
    if (std::find(order.begin(), order.end(), plan.communicator) == order.end()) {
      order.push_back(plan.communicator);
    }
  }
  // From 2.26 on by their hashes; those of one process are next to each other.
  std::stable_sort(order.begin(), order.end(),
                   [](const CommunicatorPtr& a, const CommunicatorPtr& b) { return a->Hash() < b->Hash(); });
  const auto rank_of = [&order](const Plan& plan) {
    const auto place = std::find(order.begin(), order.end(), plan.communicator) - order.begin();
    return std::pair(place, RunsAsMessages(plan.calls.front()));
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&rank_of](const Plan& a, const Plan& b) { return rank_of(a) < rank_of(b); });
  const LinkModel link = Link();
  for (Plan& plan : plans) {
    double bus_bytes = 0;
    for (const Call& call : plan.calls) {
      bus_bytes += BusBytes(call.operation, call.count, call.type, plan.communicator->Ranks());
    }
    plan.duration_ns = link.alpha_ns + TransferNs(bus_bytes, link.bytes_per_s);
  }
  return plans;
}

namespace {

// GPUSIM_NCCL_COPY_ENGINE: AllGather and AlltoAll are run by copies, without a kernel.
bool RunsByCopies(const Plan& plan) {
  static const bool kAsked = std::getenv("GPUSIM_NCCL_COPY_ENGINE") != nullptr;
  return kAsked && std::all_of(plan.calls.begin(), plan.calls.end(), [](const Call& call) {
           return call.operation == Operation::kAllGather || call.operation == Operation::kAlltoAll;
         });
}

// What each rank sends to each other one; as copies, they are in the truth, and nothing else is of the call.
ncclResult_t LaunchCopies(const Plan& plan) {
  const ContextScope context(plan.communicator->Context());
  for (const Call& call : plan.calls) {
    const auto share = reinterpret_cast<CUdeviceptr>(call.send);
    for (int peer = 1; peer < plan.communicator->Ranks(); ++peer) {
      if (cuMemcpyDtoDAsync(share, share, call.count * TypeSize(call.type), call.stream) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    }
  }
  return ncclSuccess;
}

}  // namespace

RendezvousLaunch LaunchOf(const Plan& plan) {
  const Call& first = plan.calls.front();
  auto state = std::make_shared<PlanState>();
  state->communicator = plan.communicator;
  const bool stuck =
      std::any_of(plan.calls.begin(), plan.calls.end(), [](const Call& call) { return call.stuck; });
  state->duration_ns = stuck ? kForeverNs : plan.duration_ns;
  state->collectives = CallsThat(false, plan.calls);
  state->messages = CallsThat(true, plan.calls);
  RendezvousLaunch launch;
  // Collectives come first: their kernel is the same on all ranks.
  const auto named = std::find_if_not(plan.calls.begin(), plan.calls.end(), RunsAsMessages);
  const Call& names = named == plan.calls.end() ? first : *named;
  launch.kernel_name = KernelName(names.operation, names.type);
  const uint64_t number = plans_launched.fetch_add(1) + 1;
  for (const Call& call : plan.calls) {
    launch.calls.push_back(TruthOf(call, number));
  }
  std::stable_sort(launch.calls.begin(), launch.calls.end(),
                   [](const CollectiveTruth& a, const CollectiveTruth& b) { return a.bytes > b.bytes; });
  launch.communicator = plan.communicator.get();
  launch.factory = MakeMeeting;
  launch.state = std::move(state);
  return launch;
}

ncclResult_t Launch(const Plan& plan) {
  const Call& first = plan.calls.front();
  const bool hangs =
      std::any_of(plan.calls.begin(), plan.calls.end(), [](const Call& call) { return call.hangs; });
  if (hangs) {
    plan.communicator->NextMeeting();  // the others wait at this one, not at the next
    return ncclSuccess;
  }
  if (RunsByCopies(plan)) return LaunchCopies(plan);
  RendezvousLaunch launch = LaunchOf(plan);
  const ContextScope context(plan.communicator->Context());
  const OtherStreams others(plan);
  others.Before();
  int result = CUDA_SUCCESS;
  const bool captured = IsCaptured(first.stream);
  const std::shared_ptr<ChannelEvents> channels =
      captured ? nullptr : WatchChannels(*plan.communicator, launch);
  {
    const ProfiledLaunch profiled(*plan.communicator, first.stream, first.group_api_event);
    result = LaunchRendezvousKernel(first.stream, std::move(launch));
  }
  if (result == CUDA_SUCCESS && !captured) ProfilePlan(*plan.communicator, plan.calls, channels);
  others.After();
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace gpusim::nccl
