// Carries out a random plan of NCCL calls, kernels, copies, ranges and CUDA graphs (random_plan.h).
//
// usage: random_collectives SEED one|threads|pairs|processes [RANKS [STEPS]]
// One thread drives all ranks, each rank has a thread, two ranks share one, or each rank is a process of its
// own (then this one only starts them). Prints what depends on the seed alone: how many calls NCCL refused,
// and sums over the bytes that copies moved.

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/programs/hard_way_rank.h"
#include "tests/e2e/programs/random_kernel.h"
#include "tests/e2e/programs/random_plan.h"

namespace random_collectives {
namespace {

constexpr size_t kNoiseBytes = 4096;
// Noise buffers for each stream, for the branches' per-thread streams, and for captured work.
constexpr int kCapturedNoise = kStreams + kPlainStreams;
constexpr int kNoises = kCapturedNoise + 1;

// Copies on one stream move bytes within one of these.
struct Noise {
  char* device = nullptr;
  char* host = nullptr;
};

struct RankState {
  int rank = 0;
  int device = 0;
  char* in = nullptr;
  char* out = nullptr;
  std::array<cudaStream_t, kStreams> streams = {};
  std::array<Noise, kNoises> noises;
  std::map<int, ncclComm_t> comms;
  std::map<int, cudaGraph_t> graphs;
  std::map<int, cudaGraphExec_t> execs;
  uint64_t refused = 0;

  void Use() const { CHECK(cudaSetDevice(device)); }
};

class Shared {
 public:
  Plan plan;
  std::vector<ncclUniqueId> ids;

  // -1: not a member.
  int RankIn(int comm, int rank) const {
    const std::vector<int>& members = plan.members.at(comm);
    const auto at = std::find(members.begin(), members.end(), rank);
    return at == members.end() ? -1 : static_cast<int>(at - members.begin());
  }
};

bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

void Take(ncclResult_t result) {
  if (result != ncclInProgress) CHECK(result);
}

// One thread and the ranks that it drives.
class Walker {
 public:
  // Which streams the ranks use.
  struct Where {
    int branch = -1;
    bool captured = false;
    bool forked = false;
  };

  Walker(const Shared& shared, std::vector<RankState*> ranks) : Walker(shared, std::move(ranks), Where{}) {}
  Walker(const Shared& shared, std::vector<RankState*> ranks, Where where)
      : shared_(shared), ranks_(std::move(ranks)), where_(where) {}

  void Walk() {
    for (const Step& step : shared_.plan.steps) Do(step);
    Settle();
  }

  void Run(const Body& body) {
    for (const Item& item : body) Do(item);
    Settle();
  }

  // Captured, instantiated, launched and dropped.
  void RunGraph(const Tree& tree, const std::set<int>& comms, int launches, uint64_t salt) {
    std::map<int, cudaGraph_t> graphs = Build(tree, comms, false, salt);
    std::map<int, cudaGraphExec_t> execs;
    for (const auto& [rank, graph] : graphs) {
      CHECK(cudaGraphInstantiate(&execs[rank], graph, 0));
      if (salt % 2 == 0) CHECK(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < launches; ++i) {
      for (RankState* rank : ranks_) {
        if (execs.count(rank->rank) == 0) continue;
        rank->Use();
        CHECK(cudaGraphLaunch(execs[rank->rank],
                              rank->streams[StreamOf(*rank, Mix(salt, static_cast<uint64_t>(i)))]));
      }
    }
    for (const auto& [rank, exec] : execs) CHECK(cudaGraphExecDestroy(exec));
    if (salt % 2 != 0) {
      for (const auto& [rank, graph] : graphs) CHECK(cudaGraphDestroy(graph));
    }
  }

 private:
  bool IsIn(const RankState& rank, int comm) const { return shared_.RankIn(comm, rank.rank) >= 0; }

  size_t StreamOf(const RankState& rank, uint64_t salt) const {
    const uint64_t choice = Mix(salt, static_cast<uint64_t>(rank.rank));
    const int second = where_.branch >= 0 ? kStreams - 1 : 1;
    if (where_.captured)
      return static_cast<size_t>(where_.forked && choice % 2 == 0 ? second : std::max(where_.branch, 0));
    if (where_.branch >= 0) return static_cast<size_t>(choice % 3 == 0 ? kStreams - 1 : where_.branch);
    return choice % kStreams;
  }

  const Noise& NoiseOf(const RankState& rank, size_t stream) const {
    if (where_.captured) return rank.noises[kCapturedNoise];
    const bool of_branch = where_.branch >= 0 && stream == kStreams - 1;
    return rank.noises[of_branch ? kStreams + static_cast<size_t>(where_.branch) : stream];
  }

  // --- communicators that do not block

  struct Pending {
    ncclComm_t comm;
    RankState* rank;
    size_t stream;
  };

  void Settle() {
    for (const Pending& pending : pending_) hard_way::Await(pending.comm);
    pending_.clear();
  }

  // NCCL may still be launching a call: nothing may be issued to its stream, or by its communicator, before.
  bool MayOverlap(const RankState& rank, ncclComm_t comm, size_t stream) const {
    return std::all_of(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      if (pending.rank != &rank) return true;
      return pending.comm != comm && pending.stream != stream && pending.stream < kPlainStreams &&
             stream < kPlainStreams;
    });
  }

  void Note(ncclResult_t result, RankState& rank, ncclComm_t comm, size_t stream) {
    if (result == ncclInProgress || depth_ > 0) pending_.push_back({comm, &rank, stream});
  }

  // --- calls

  // Ranks of this thread in the communicator.
  std::vector<RankState*> Here(int comm) const {
    std::vector<RankState*> here;
    for (RankState* rank : ranks_) {
      if (IsIn(*rank, comm)) here.push_back(rank);
    }
    return here;
  }

  void StartGroup() {
    if (depth_++ == 0) Settle();
    CHECK(ncclGroupStart());
  }

  void EndGroup(bool simulate) {
    ncclResult_t result = ncclSuccess;
    if (simulate) {
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      result = ncclGroupSimulateEnd(&info);
    } else {
      result = ncclGroupEnd();
    }
    if (--depth_ > 0) return;
    if (group_refused_ && Accepted(result)) CHECK(ncclInternalError);
    if (!group_refused_) Take(result);
    group_refused_ = false;
    if (result == ncclSuccess || !Accepted(result)) pending_.clear();
  }

  void Issue(const Call& call, RankState& rank) {
    const int me = shared_.RankIn(call.comm, rank.rank);
    const auto ranks = static_cast<int>(shared_.plan.members.at(call.comm).size());
    if (call.op == Op::kSend && me != call.root && me != call.peer) return;
    const ncclComm_t comm = rank.comms.at(call.comm);
    const size_t at = StreamOf(rank, call.salt);
    if (depth_ == 0 && !MayOverlap(rank, comm, at)) Settle();
    rank.Use();
    cudaStream_t stream = rank.streams[at];
    const auto type = static_cast<ncclDataType_t>(call.type);
    auto reduction = static_cast<ncclRedOp_t>(call.reduction);
    float factor = 2;
    const bool reduces = call.op == Op::kAllReduce || call.op == Op::kReduceScatter || call.op == Op::kReduce;
    const bool own = reduces && call.reduction == kOwnReduction;
    if (own) CHECK(ncclRedOpCreatePreMulSum(&reduction, &factor, type, ncclScalarHostImmediate, comm));
    char* out = call.in_place ? rank.in : rank.out;
    const size_t count = call.count;
    ncclResult_t result = ncclSuccess;
    switch (call.op) {
      case Op::kAllReduce:
        result = ncclAllReduce(rank.in, out, count, type, reduction, comm, stream);
        break;
      case Op::kAllGather:
        result = ncclAllGather(rank.in, out, count, type, comm, stream);
        break;
      case Op::kReduceScatter:
        result = ncclReduceScatter(rank.in, out, count, type, reduction, comm, stream);
        break;
      case Op::kBroadcast:
        result = ncclBroadcast(rank.in, out, count, type, call.root, comm, stream);
        break;
      case Op::kBcast:
        result = ncclBcast(rank.in, count, type, call.root, comm, stream);
        break;
      case Op::kReduce:
        result = ncclReduce(rank.in, out, count, type, reduction, call.root, comm, stream);
        break;
      case Op::kAlltoAll:
        result = ncclAlltoAll(rank.in, rank.out, count, type, comm, stream);
        break;
      case Op::kGather:
        result = ncclGather(rank.in, rank.out, count, type, call.root, comm, stream);
        break;
      case Op::kScatter:
        result = ncclScatter(rank.in, rank.out, count, type, call.root, comm, stream);
        break;
      case Op::kShift:
        Take(ncclSend(rank.in, count, type, (me + call.root) % ranks, comm, stream));
        result = ncclRecv(rank.out, count, type, (me + ranks - call.root) % ranks, comm, stream);
        break;
      case Op::kSend:
        result = me == call.root ? ncclSend(rank.in, count, type, call.peer, comm, stream)
                                 : ncclRecv(rank.out, count, type, call.root, comm, stream);
        break;
    }
    Take(result);
    Note(result, rank, comm, at);
    if (own) {
      if (depth_ == 0) Settle();
      CHECK(ncclRedOpDestroy(reduction, comm));
    }
  }

  void Do(const Call& call) {
    const std::vector<RankState*> here = Here(call.comm);
    const bool grouped = depth_ == 0 && (here.size() > 1 || (call.op == Op::kShift && !here.empty()));
    if (grouped) StartGroup();
    for (RankState* rank : here) Issue(call, *rank);
    if (grouped) EndGroup(false);
    if (depth_ == 0 && call.salt % 5 < 3) Settle();
  }

  // What NCCL refuses at once. In a group the others do the same.
  void DoBad(const Item& item) {
    for (RankState* rank : Here(item.call.comm)) {
      const uint64_t choice = Mix(item.salt, static_cast<uint64_t>(rank->rank));
      if (depth_ == 0 && item.salt % 4 != 3 && choice % 2 == 0) continue;
      const auto ranks = static_cast<int>(shared_.plan.members.at(item.call.comm).size());
      const ncclComm_t comm = rank->comms.at(item.call.comm);
      const size_t count = item.call.count;
      if (depth_ == 0) Settle();
      rank->Use();
      cudaStream_t stream = rank->streams[StreamOf(*rank, item.salt)];
      ncclResult_t result = ncclSuccess;
      switch (item.salt / 4 % 5) {
        case 0:
          result = ncclBroadcast(rank->in, rank->out, count, ncclFloat, ranks, comm, stream);
          break;
        case 1:
          result = ncclBcast(rank->in, count, ncclFloat, -1, comm, stream);
          break;
        case 2:
          result = ncclSend(rank->in, count, ncclFloat, ranks, comm, stream);
          break;
        case 3:
          result = ncclAllReduce(rank->in, rank->out, count, ncclNumTypes, ncclSum, comm, stream);
          break;
        default:
          result = ncclGather(rank->in, rank->out, count, ncclHalf, ranks + 3, comm, stream);
          break;
      }
      if (Accepted(result)) CHECK(ncclInternalError);
      ++rank->refused;
      group_refused_ = group_refused_ || depth_ > 0;
    }
  }

  // --- everything else in a body

  void Do(const Item& item) {
    switch (item.kind) {
      case ItemKind::kCall:
        return Do(item.call);
      case ItemKind::kBadCall:
        return DoBad(item);
      case ItemKind::kGroupStart:
        return StartGroup();
      case ItemKind::kGroupEnd:
        return EndGroup(false);
      case ItemKind::kSimulateEnd:
        return EndGroup(true);
      default:
        break;
    }
    Settle();
    for (RankState* rank : Here(item.call.comm)) {
      rank->Use();
      Do(item, *rank);
    }
  }

  void Do(const Item& item, RankState& rank) {
    const uint64_t choice = Mix(item.salt, 1000 + static_cast<uint64_t>(rank.rank));
    const size_t at = StreamOf(rank, item.salt);
    const Noise& noise = NoiseOf(rank, at);
    cudaStream_t stream = rank.streams[at];
    const size_t bytes = 1 + choice % (kNoiseBytes / 2);
    char* half = noise.device + kNoiseBytes / 2;
    switch (item.kind) {
      case ItemKind::kKernel:
        LaunchKernel(static_cast<int>(1 + choice % 4), noise.device, stream);
        break;
      case ItemKind::kCopy:
        if (choice % 3 == 0) {
          CHECK(cudaMemcpyAsync(noise.device, noise.host, bytes, cudaMemcpyHostToDevice, stream));
        } else if (choice % 3 == 1) {
          CHECK(cudaMemcpyAsync(noise.host, half, bytes, cudaMemcpyDeviceToHost, stream));
        } else {
          CHECK(cudaMemcpyAsync(half, noise.device, bytes, cudaMemcpyDeviceToDevice, stream));
        }
        break;
      case ItemKind::kFill:
        CHECK(cudaMemsetAsync(noise.device, static_cast<int>(choice % 256), bytes, stream));
        break;
      case ItemKind::kEvent:
        return Order(stream, rank.streams[StreamOf(rank, item.salt + 1)]);
      case ItemKind::kAllocate:
        // Only where one thread does, allocations have an order that can be compared.
        if (where_.branch < 0) Allocate(choice, stream);
        return;
      case ItemKind::kRange:
        return Range(choice);
      case ItemKind::kAsk:
        return Ask(rank.comms.at(item.call.comm));
      case ItemKind::kRegister:
        // A release waits for the whole device: for branches that wait for those of other ranks.
        if (where_.branch < 0) Register(rank.comms.at(item.call.comm), bytes);
        return;
      case ItemKind::kSynchronize:
        CHECK(choice % 3 == 0 && where_.branch < 0 ? cudaDeviceSynchronize() : cudaStreamSynchronize(stream));
        break;
      default:
        break;
    }
  }

  static void Order(cudaStream_t earlier, cudaStream_t later) {
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, earlier));
    CHECK(cudaStreamWaitEvent(later, event, 0));
    CHECK(cudaEventDestroy(event));
  }

  static void Allocate(uint64_t choice, cudaStream_t stream) {
    void* memory = nullptr;
    const size_t bytes = 512 + choice % 100000;
    if (choice % 3 == 0) {
      CHECK(cudaMalloc(&memory, bytes));
      CHECK(cudaFree(memory));
    } else if (choice % 3 == 1) {
      CHECK(cudaMallocAsync(&memory, bytes, stream));
      CHECK(cudaFreeAsync(memory, stream));
    } else {
      CHECK(cudaMallocHost(&memory, bytes));
      CHECK(cudaFreeHost(memory));
    }
  }

  void Range(uint64_t choice) {
    if (choice % 3 == 0) nvtxMarkA("here");
    if (choice % 3 == 1) {
      nvtxRangePushA("forward");
      ++ranges_;
    }
    if (choice % 3 == 2 && ranges_ > 0) {
      nvtxRangePop();
      --ranges_;
    }
  }

  static void Ask(ncclComm_t comm) {
    int number = 0;
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommCount(comm, &number));
    CHECK(ncclCommUserRank(comm, &number));
    CHECK(ncclCommCuDevice(comm, &number));
    CHECK(ncclGetVersion(&number));
    CHECK(ncclCommGetAsyncError(comm, &state));
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
  }

  static void Register(ncclComm_t comm, size_t bytes) {
    void* memory = nullptr;
    void* handle = nullptr;
    ncclWindow_t window = nullptr;
    CHECK(ncclMemAlloc(&memory, bytes));
    CHECK(ncclCommRegister(comm, memory, bytes, &handle));
    CHECK(ncclCommWindowRegister(comm, memory, bytes, &window, 0));
    CHECK(ncclCommWindowDeregister(comm, window));
    CHECK(ncclCommDeregister(comm, handle));
    CHECK(ncclMemFree(memory));
  }

  // --- graphs

  std::map<int, cudaGraph_t> Build(const Tree& tree, const std::set<int>& comms, bool jointly,
                                   uint64_t salt) {
    Settle();
    std::vector<RankState*> taking_part;
    for (RankState* rank : ranks_) {
      if (std::any_of(comms.begin(), comms.end(), [&](int comm) { return IsIn(*rank, comm); }))
        taking_part.push_back(rank);
    }
    std::map<int, cudaGraph_t> graphs;
    if (jointly) {
      Capture(tree, taking_part, salt, graphs);
    } else {
      for (RankState* rank : taking_part) Capture(tree, {rank}, salt, graphs);
    }
    for (const Tree& child : tree.children) {
      for (const auto& [rank, graph] : Build(child, comms, jointly, salt + 1))
        AddChild(graphs[rank], graph, child.moved);
    }
    for (auto& [rank, graph] : graphs) {
      if (!tree.cloned) continue;
      cudaGraph_t clone = nullptr;
      CHECK(cudaGraphClone(&clone, graph));
      CHECK(cudaGraphDestroy(graph));
      graph = clone;
    }
    return graphs;
  }

  void Capture(const Tree& tree, const std::vector<RankState*>& ranks, uint64_t salt,
               std::map<int, cudaGraph_t>& graphs) {
    const Where where{.branch = where_.branch, .captured = true, .forked = tree.forked};
    const auto first = static_cast<size_t>(std::max(where.branch, 0));
    const size_t second = where.branch >= 0 ? kStreams - 1 : 1;
    const auto mode = salt % 2 == 0 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed;
    for (RankState* rank : ranks) {
      rank->Use();
      CHECK(cudaStreamBeginCapture(rank->streams[first], mode));
      if (tree.forked) Order(rank->streams[first], rank->streams[second]);
    }
    Walker(shared_, ranks, where).Run(tree.body);
    for (RankState* rank : ranks) {
      rank->Use();
      if (tree.forked) Order(rank->streams[second], rank->streams[first]);
      CHECK(cudaStreamEndCapture(rank->streams[first], &graphs[rank->rank]));
    }
  }

  // After everything that is there.
  static void AddChild(cudaGraph_t parent, cudaGraph_t child, bool move) {
    size_t count = 0;
    CHECK(cudaGraphGetNodes(parent, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    if (count != 0) CHECK(cudaGraphGetNodes(parent, nodes.data(), &count));
    cudaGraphNode_t node = nullptr;
    if (!move) {
      CHECK(cudaGraphAddChildGraphNode(&node, parent, nodes.data(), count, child));
      CHECK(cudaGraphDestroy(child));
      return;
    }
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeGraph;
    params.graph.graph = child;
    params.graph.ownership = cudaGraphChildGraphOwnershipMove;
    CHECK(cudaGraphAddNode(&node, parent, nodes.data(), nullptr, count, &params));
  }

  void Launch(const Step& step) {
    Settle();
    const auto launch = [this, &step] {
      for (int i = 0; i < step.times; ++i) {
        for (RankState* rank : ranks_) {
          const auto exec = rank->execs.find(step.exec);
          if (exec == rank->execs.end()) continue;
          rank->Use();
          const size_t stream = StreamOf(*rank, step.salt + static_cast<uint64_t>(i));
          // A thread's own stream ends with it.
          CHECK(
              cudaGraphLaunch(exec->second, rank->streams[step.on_thread ? stream % kPlainStreams : stream]));
        }
      }
    };
    if (step.on_thread) {
      std::thread(launch).join();
    } else {
      launch();
    }
  }

  // --- communicators

  // Where NCCL writes handles, until the group has ended.
  struct Places {
    std::vector<std::unique_ptr<std::vector<ncclComm_t>>> all;
    ncclComm_t* New(size_t count) {
      all.push_back(std::make_unique<std::vector<ncclComm_t>>(count));
      return all.back()->data();
    }
  };

  void Make(const Step& step) {
    Settle();
    Places places;
    std::vector<std::function<void()>> after;
    if (step.grouped) CHECK(ncclGroupStart());
    for (const NewComm& made : step.made) {
      if (made.way == NewComm::Way::kAll) {
        MakeAll(made, places, after);
        continue;
      }
      const bool several = !step.grouped && ranks_.size() > 1;
      if (several) CHECK(ncclGroupStart());
      for (RankState* rank : ranks_) MakeOne(made, *rank, places, after);
      if (several) Take(ncclGroupEnd());
    }
    if (step.grouped) Take(ncclGroupEnd());
    for (const auto& finish : after) finish();
  }

  void MakeAll(const NewComm& made, Places& places, std::vector<std::function<void()>>& after) {
    ncclComm_t* comms = places.New(made.members.size());
    CHECK(ncclCommInitAll(comms, static_cast<int>(made.members.size()), made.members.data()));
    after.push_back([this, comms, &made] {
      for (size_t i = 0; i < made.members.size(); ++i) {
        for (RankState* rank : ranks_) {
          if (rank->rank == made.members[i]) rank->comms[made.comm] = comms[i];
        }
      }
    });
  }

  void MakeOne(const NewComm& made, RankState& rank, Places& places,
               std::vector<std::function<void()>>& after) {
    const bool child = made.way == NewComm::Way::kSplit || made.way == NewComm::Way::kShrink;
    const int me = shared_.RankIn(child ? made.parent : made.comm, rank.rank);
    if (me < 0) return;
    rank.Use();
    ncclComm_t* comm = places.New(1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = made.blocking ? 1 : 0;
    const auto ranks = static_cast<int>(made.members.size());
    int becomes = made.comm;
    ncclUniqueId ids[2] = {};
    if (!child) ids[0] = shared_.ids.at(static_cast<size_t>(made.id));
    switch (made.way) {
      case NewComm::Way::kRank:
        Take(ncclCommInitRank(comm, ranks, ids[0], me));
        break;
      case NewComm::Way::kConfig:
        Take(ncclCommInitRankConfig(comm, ranks, ids[0], me, &config));
        break;
      case NewComm::Way::kScalable:
        ids[1] = shared_.ids.at(static_cast<size_t>(made.id) + 1);
        Take(ncclCommInitRankScalable(comm, ranks, me, ranks > 1 ? 2 : 1, ids, &config));
        break;
      case NewComm::Way::kSplit: {
        const int color = made.colors[static_cast<size_t>(me)];
        Take(ncclCommSplit(rank.comms.at(made.parent), color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                           made.keys[static_cast<size_t>(me)], comm, nullptr));
        becomes = color < 0 ? -1 : made.comm + color;
        break;
      }
      case NewComm::Way::kShrink: {
        if (!IsIn(rank, made.comm)) return;
        std::vector<int> excluded = made.excluded;
        Take(ncclCommShrink(rank.comms.at(made.parent), excluded.data(), static_cast<int>(excluded.size()),
                            comm, nullptr, NCCL_SHRINK_DEFAULT));
        break;
      }
      case NewComm::Way::kAll:
        break;
    }
    const ncclComm_t parent = child ? rank.comms.at(made.parent) : nullptr;
    after.push_back([comm, becomes, parent, &rank] {
      if (*comm != nullptr) hard_way::Await(*comm);
      if (parent != nullptr) hard_way::Await(parent);
      if (becomes >= 0) rank.comms[becomes] = *comm;
      if ((becomes >= 0) != (*comm != nullptr)) CHECK(ncclInternalError);
    });
  }

  // By some of the ranks only: nothing has happened.
  void RefusedMake(const Step& step) {
    Settle();
    for (RankState* rank : Here(step.comm)) {
      const uint64_t choice = Mix(step.salt, static_cast<uint64_t>(rank->rank));
      if (choice % 2 == 0) continue;
      rank->Use();
      const ncclComm_t comm = rank->comms.at(step.comm);
      ncclComm_t made = nullptr;
      int me = shared_.RankIn(step.comm, rank->rank);
      ncclResult_t result = ncclSuccess;
      ncclUniqueId id = {};
      switch (choice / 2 % 4) {
        case 0:
          result = ncclCommSplit(comm, -7, 0, &made, nullptr);
          break;
        case 1:
          result = ncclCommShrink(comm, &me, 1, &made, nullptr, NCCL_SHRINK_DEFAULT);
          break;
        case 2:
          result = ncclCommInitRank(&made, 2, id, 2);
          break;
        default:
          result = ncclCommInitAll(&made, 0, nullptr);
          break;
      }
      if (Accepted(result)) CHECK(ncclInternalError);
      ++rank->refused;
    }
  }

  void EndOf(const Step& step) {
    Settle();
    for (RankState* rank : Here(step.comm)) {
      rank->Use();
      const ncclComm_t comm = rank->comms.at(step.comm);
      if (step.kind == StepKind::kRevoke) {
        CHECK(cudaDeviceSynchronize());
        CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
        continue;
      }
      if (step.kind == StepKind::kAbort) {
        if (step.salt % 2 == 0) CHECK(cudaDeviceSynchronize());
        CHECK(ncclCommAbort(comm));
      } else {
        if (step.finalize) Take(ncclCommFinalize(comm));
        CHECK(ncclCommDestroy(comm));
      }
      rank->comms.erase(step.comm);
    }
  }

  // --- steps

  void Parallel(const Step& step) {
    Settle();
    std::vector<std::thread> threads;
    threads.reserve(step.branches.size());
    for (size_t i = 0; i < step.branches.size(); ++i) {
      const Step::Branch& branch = step.branches[i];
      if (Here(branch.comm).empty()) continue;
      threads.emplace_back([this, &step, &branch, i] {
        Walker walker(shared_, Here(branch.comm), {.branch = static_cast<int>(i)});
        for (size_t b = 0; b < branch.bodies.size(); ++b) {
          walker.Run(branch.bodies[b]);
          if (b == 0 && branch.launches != 0)
            walker.RunGraph(branch.tree, {branch.comm}, branch.launches, step.salt + i);
        }
        for (const RankState* rank : walker.ranks_) {
          rank->Use();
          CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Update(const Step& step) {
    for (const auto& [rank, graph] : Build(step.tree, step.comms, step.jointly, step.salt)) {
      for (RankState* state : ranks_) {
        if (state->rank != rank) continue;
        cudaGraphExecUpdateResultInfo info{};
        CHECK(cudaGraphExecUpdate(state->execs.at(step.exec), graph, &info));
      }
      CHECK(cudaGraphDestroy(graph));
    }
  }

  void Do(const Step& step) {
    switch (step.kind) {
      case StepKind::kMake:
        return Make(step);
      case StepKind::kBody:
        return Run(step.body);
      case StepKind::kParallel:
        return Parallel(step);
      case StepKind::kRefusedMake:
        return RefusedMake(step);
      case StepKind::kDestroy:
      case StepKind::kAbort:
      case StepKind::kRevoke:
        return EndOf(step);
      case StepKind::kUpdate:
        return Update(step);
      case StepKind::kLaunch:
        return Launch(step);
      case StepKind::kBuild:
        for (const auto& [rank, graph] : Build(step.tree, step.comms, step.jointly, step.salt)) {
          for (RankState* state : ranks_) {
            if (state->rank == rank) state->graphs[step.graph] = graph;
          }
        }
        return;
      default:
        break;
    }
    for (RankState* rank : ranks_) {
      rank->Use();
      if (step.kind == StepKind::kInstantiate && rank->graphs.count(step.graph) != 0)
        CHECK(cudaGraphInstantiate(&rank->execs[step.exec], rank->graphs[step.graph], 0));
      if (step.kind == StepKind::kDropGraph && rank->graphs.count(step.graph) != 0) {
        CHECK(cudaGraphDestroy(rank->graphs[step.graph]));
        rank->graphs.erase(step.graph);
      }
      if (step.kind == StepKind::kDropExec && rank->execs.count(step.exec) != 0) {
        CHECK(cudaGraphExecDestroy(rank->execs[step.exec]));
        rank->execs.erase(step.exec);
      }
    }
  }

  const Shared& shared_;
  const std::vector<RankState*> ranks_;
  const Where where_;
  std::vector<Pending> pending_;
  int depth_ = 0;
  bool group_refused_ = false;
  int ranges_ = 0;
};

void SetUp(RankState& state) {
  state.Use();
  CHECK(cudaMalloc(&state.in, hard_way::kBufferBytes));
  CHECK(cudaMalloc(&state.out, hard_way::kBufferBytes));
  for (int i = 0; i < kPlainStreams; ++i)
    CHECK(cudaStreamCreateWithFlags(&state.streams[static_cast<size_t>(i)], cudaStreamNonBlocking));
  CHECK(cudaStreamCreate(&state.streams[kPlainStreams]));
  state.streams[kPlainStreams + 1] = nullptr;
  state.streams[kPlainStreams + 2] = cudaStreamLegacy;
  state.streams[kPlainStreams + 3] = cudaStreamPerThread;
  for (Noise& noise : state.noises) {
    CHECK(cudaMalloc(&noise.device, kNoiseBytes));
    CHECK(cudaMemset(noise.device, 1, kNoiseBytes));
    CHECK(cudaMallocHost(&noise.host, kNoiseBytes));
    for (size_t i = 0; i < kNoiseBytes; ++i)
      noise.host[i] = static_cast<char>(i * 7 + static_cast<size_t>(state.rank));
  }
  CHECK(cudaDeviceSynchronize());
}

// The sum over what the copies moved.
uint64_t TearDown(RankState& state) {
  state.Use();
  CHECK(cudaDeviceSynchronize());
  uint64_t sum = 0;
  std::vector<char> bytes(kNoiseBytes);
  for (size_t i = 0; i < state.noises.size(); ++i) {
    const Noise& noise = state.noises[i];
    CHECK(cudaMemcpy(bytes.data(), noise.device, kNoiseBytes, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < kNoiseBytes && i != kCapturedNoise; ++at)
      sum = sum * 31 + static_cast<unsigned char>(bytes[at]) +
            uint64_t{256} * static_cast<unsigned char>(noise.host[at]);
    CHECK(cudaFree(noise.device));
    CHECK(cudaFreeHost(noise.host));
  }
  CHECK(cudaFree(state.in));
  CHECK(cudaFree(state.out));
  for (int i = 0; i <= kPlainStreams; ++i) CHECK(cudaStreamDestroy(state.streams[static_cast<size_t>(i)]));
  return sum;
}

struct Arguments {
  PlanOptions options;
  std::string mode;
};

int RunRanks(const Arguments& arguments, const std::vector<ncclUniqueId>* given, int only_rank) {
  Shared shared;
  shared.plan = MakePlan(arguments.options);
  if (given != nullptr) {
    shared.ids = *given;
  } else {
    shared.ids.resize(static_cast<size_t>(shared.plan.unique_ids));
    for (ncclUniqueId& id : shared.ids) CHECK(ncclGetUniqueId(&id));
  }
  std::vector<RankState> states;
  for (int rank = 0; rank < arguments.options.ranks; ++rank) {
    if (only_rank >= 0 && rank != only_rank) continue;
    states.emplace_back();
    states.back().rank = states.back().device = rank;
  }
  const size_t share = arguments.mode == "one" ? states.size() : arguments.mode == "pairs" ? 2 : 1;
  std::vector<std::thread> threads;
  std::vector<uint64_t> sums(states.size());
  for (size_t first = 0; first < states.size(); first += share) {
    const size_t end = std::min(first + share, states.size());
    threads.emplace_back([&, first, end] {
      std::vector<RankState*> mine;
      for (size_t i = first; i < end; ++i) {
        SetUp(states[i]);
        mine.push_back(&states[i]);
      }
      Walker(shared, mine).Walk();
      for (size_t i = first; i < end; ++i) sums[i] = TearDown(states[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (size_t i = 0; i < states.size(); ++i) {
    char line[128];
    std::snprintf(line, sizeof(line), "rank %d: %llu refused, sum %016llx\n", states[i].rank,
                  static_cast<unsigned long long>(states[i].refused),
                  static_cast<unsigned long long>(sums[i]));
    text += line;
  }
  return write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

// The unique ids go through a pipe to each.
int RunProcesses(const Arguments& arguments, char** argv) {
  std::vector<ncclUniqueId> ids(static_cast<size_t>(MakePlan(arguments.options).unique_ids));
  for (ncclUniqueId& id : ids) CHECK(ncclGetUniqueId(&id));
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.options.ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(arguments.options.ranks).c_str(), 1);
      dup2(ends[0], STDIN_FILENO);
      close(ends[0]);
      close(ends[1]);
      execv("/proc/self/exe", argv);
      _exit(127);
    }
    close(ends[0]);
    const size_t bytes = ids.size() * sizeof(ncclUniqueId);
    if (write(ends[1], ids.data(), bytes) != static_cast<ssize_t>(bytes)) return 1;
    close(ends[1]);
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) worst = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return worst;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: random_collectives SEED one|threads|pairs|processes [RANKS [STEPS]]\n");
    return 2;
  }
  Arguments arguments;
  arguments.mode = argv[2];
  arguments.options.seed = std::strtoull(argv[1], nullptr, 10);
  if (argc > 3) arguments.options.ranks = std::atoi(argv[3]);
  if (argc > 4) arguments.options.steps = std::atoi(argv[4]);
  arguments.options.one_thread = arguments.mode == "one";
  arguments.options.processes = arguments.mode == "processes";
  if (!arguments.options.processes) return RunRanks(arguments, nullptr, -1);
  const char* rank = std::getenv("RANK");
  if (rank == nullptr) return RunProcesses(arguments, argv);
  std::vector<ncclUniqueId> ids(static_cast<size_t>(MakePlan(arguments.options).unique_ids));
  const size_t bytes = ids.size() * sizeof(ncclUniqueId);
  if (read(STDIN_FILENO, ids.data(), bytes) != static_cast<ssize_t>(bytes)) return 1;
  return RunRanks(arguments, &ids, std::atoi(rank));
}

}  // namespace
}  // namespace random_collectives

int main(int argc, char** argv) { return random_collectives::Main(argc, argv); }
