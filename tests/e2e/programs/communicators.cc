// Communicators made, divided, shrunk, revoked and aborted in every way that NCCL has, and calls that launch
// nothing. Which scenario is the argument.
//
// usage: communicators SCENARIO [CALLS]
// Says "<scenario>: <N> calls" and how many collectives, sends and receives it issued, refused ones included.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/programs/hard_way_nccl.h"
#include "tests/e2e/programs/hard_way_rank.h"

namespace hard_way {
namespace {

// One thread for each rank, with a device of its own.
void OnThreads(int ranks, const std::function<void(Rank&, int)>& program) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&program, number] {
      Rank rank(number);
      program(rank, number);
      rank.Free();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same with a communicator of all ranks, which ends with the program.
void Joined(int ranks, const std::function<void(Rank&, int)>& program) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  OnThreads(ranks, [&](Rank& r, int number) {
    CHECK(ncclCommInitRank(&r.comm, ranks, id, number));
    program(r, number);
    r.Synchronize();
    if (r.comm != nullptr) CHECK(ncclCommDestroy(r.comm));
  });
}

void AllReduce(const Rank& r, ncclComm_t comm, size_t count) {
  ISSUE(ncclAllReduce(r.in, r.in, count, ncclFloat, ncclSum, comm, r.stream));
}

void Refused(ncclResult_t result) {
  ++issued;
  if (result == ncclSuccess || result == ncclInProgress) CHECK(ncclInternalError);
}

void Scalable() {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) CHECK(ncclGetUniqueId(&id));
  OnThreads(4, [&](const Rank& r, int number) {
    ncclUniqueId mine[2] = {ids[0], ids[1]};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "the whole job";
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRankScalable(&comm, 4, number, 2, mine, &config));
    for (size_t count = 10; count <= 30; count += 10) AllReduce(r, comm, count);
    r.Synchronize();
    CHECK(ncclCommFinalize(comm));
    CHECK(ncclCommDestroy(comm));
  });
}

// Names: of a communicator and its children, gone when the call returns; of a configuration that is too old
// to have one; none.
void Named() {
  constexpr unsigned kWithoutNames = NCCL_VERSION(2, 26, 0);
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  const auto named = [](const std::string& name, unsigned version, const auto& make) {
    std::vector<char> text(name.begin(), name.end());
    text.push_back('\0');
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.version = version;
    config.commName = text.data();
    CHECK(make(&config));
    std::fill(text.begin(), text.end(), '?');
  };
  OnThreads(2, [&](const Rank& r, int number) {
    ncclComm_t all = nullptr;
    ncclComm_t mesh = nullptr;
    ncclComm_t old = nullptr;
    ncclComm_t unnamed = nullptr;
    CHECK(ncclGroupStart());
    named("the whole job", NCCL_VERSION_CODE,
          [&](ncclConfig_t* config) { return ncclCommInitRankConfig(&all, 2, id, number, config); });
    CHECK(ncclGroupEnd());
    named("mesh \"dp\"", NCCL_VERSION_CODE,
          [&](ncclConfig_t* config) { return ncclCommSplit(all, 0, number, &mesh, config); });
    named("old", kWithoutNames,
          [&](ncclConfig_t* config) { return ncclCommSplit(all, 0, number, &old, config); });
    CHECK(ncclCommSplit(all, 0, number, &unnamed, nullptr));
    size_t count = 10;
    for (ncclComm_t comm : {all, mesh, old, unnamed}) AllReduce(r, comm, count++);
    r.Synchronize();
    for (ncclComm_t comm : {unnamed, old, mesh, all}) CHECK(ncclCommDestroy(comm));
  });
}

// Two of four ranks in a child, the others in none; two halves, made in a group; a child of a child.
void Split() {
  Joined(4, [](const Rank& r, int number) {
    ncclComm_t some = nullptr;
    ncclComm_t half = nullptr;
    ncclComm_t turned = nullptr;
    CHECK(ncclCommSplit(r.comm, number < 2 ? 0 : NCCL_SPLIT_NOCOLOR, -number, &some, nullptr));
    CHECK(ncclGroupStart());
    CHECK(ncclCommSplit(r.comm, number % 2, number, &half, nullptr));
    CHECK(ncclGroupEnd());
    if (some != nullptr) AllReduce(r, some, 10);
    AllReduce(r, half, 20);
    CHECK(ncclCommSplit(half, 0, -number, &turned, nullptr));
    AllReduce(r, turned, 30);
    AllReduce(r, r.comm, 40);
    r.Synchronize();
    for (ncclComm_t comm : {turned, half, some}) {
      if (comm != nullptr) CHECK(ncclCommDestroy(comm));
    }
  });
}

// One thread makes and divides the communicators of all its devices, in groups.
void SplitInGroups() {
  constexpr int kRanks = 4;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  std::vector<Rank> ranks;
  ranks.reserve(kRanks);
  ncclComm_t halves[kRanks] = {};
  for (int device = 0; device < kRanks; ++device) ranks.emplace_back(device);
  const auto together = [&](const std::function<void(Rank&, ncclComm_t&, int)>& call) {
    CHECK(ncclGroupStart());
    for (int i = 0; i < kRanks; ++i) {
      ranks[static_cast<size_t>(i)].Use();
      call(ranks[static_cast<size_t>(i)], halves[i], i);
    }
    CHECK(ncclGroupEnd());
  };
  together([&](Rank& r, ncclComm_t&, int i) { CHECK(ncclCommInitRank(&r.comm, kRanks, id, i)); });
  together(
      [](const Rank& r, ncclComm_t& half, int i) { CHECK(ncclCommSplit(r.comm, i / 2, i, &half, nullptr)); });
  together(
      [](const Rank& r, ncclComm_t& half, int i) { AllReduce(r, half, 10 + static_cast<size_t>(i / 2)); });
  together([](const Rank& r, ncclComm_t& half, int i) {
    AllReduce(r, r.comm, 50);
    AllReduce(r, half, 60 + static_cast<size_t>(i / 2));
  });
  for (size_t i = 0; i < kRanks; ++i) {
    ranks[i].Free();
    CHECK(ncclCommDestroy(halves[i]));
    CHECK(ncclCommDestroy(ranks[i].comm));
  }
}

void SplitWithoutBlocking() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  OnThreads(4, [&](const Rank& r, int number) {
    const auto take = [](ncclResult_t result, ncclComm_t comm) {
      if (result != ncclInProgress) CHECK(result);
      Await(comm);
    };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclComm_t half = nullptr;
    const ncclResult_t made = ncclCommInitRankConfig(&comm, 4, id, number, &config);
    take(made, comm);
    const ncclResult_t divided = ncclCommSplit(comm, number % 2, number, &half, nullptr);
    take(divided, comm);  // the new one's handle may be written late
    Await(half);
    for (size_t count = 7; count <= 21; count += 7) {
      take(ncclAllReduce(r.in, r.in, count, ncclFloat, ncclSum, half, r.stream), half);
      ++issued;
    }
    r.Synchronize();
    take(ncclCommFinalize(half), half);
    CHECK(ncclCommDestroy(half));
    CHECK(ncclCommDestroy(comm));
  });
}

void Shrink() {
  constexpr int kLeftOut = 3;
  Joined(4, [](const Rank& r, int number) {
    AllReduce(r, r.comm, 10);
    if (number == kLeftOut) return;
    int excluded[] = {kLeftOut};
    ncclComm_t rest = nullptr;
    CHECK(ncclCommShrink(r.comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    for (size_t count = 100; count <= 300; count += 100) AllReduce(r, rest, count);
    r.Synchronize();
    CHECK(ncclCommDestroy(rest));
  });
}

// Children that come and go get the handles of those before them.
void Many() {
  Joined(2, [](const Rank& r, int number) {
    for (size_t round = 1; round <= 300; ++round) {
      ncclComm_t child = nullptr;
      CHECK(ncclCommSplit(r.comm, 0, number, &child, nullptr));
      AllReduce(r, child, round);
      r.Synchronize();
      CHECK(ncclCommDestroy(child));
    }
  });
}

// No elements: alone, between others in a group, and point to point. They count like others.
void Empty() {
  Joined(2, [](const Rank& r, int number) {
    AllReduce(r, r.comm, 0);
    AllReduce(r, r.comm, 5);
    CHECK(ncclGroupStart());
    AllReduce(r, r.comm, 0);
    AllReduce(r, r.comm, 6);
    ISSUE(ncclSend(r.in, 0, ncclFloat, 1 - number, r.comm, r.stream));
    ISSUE(ncclRecv(r.out, 0, ncclFloat, 1 - number, r.comm, r.stream));
    CHECK(ncclGroupEnd());
    AllReduce(r, r.comm, 7);
    ISSUE(ncclBroadcast(r.in, r.in, 0, ncclFloat, 1, r.comm, r.stream));
    AllReduce(r, r.comm, 8);
  });
}

// A communicator of one rank: nothing, a copy, and a message to itself, which is a kernel.
void Alone() {
  Joined(1, [](const Rank& r, int) {
    AllReduce(r, r.comm, 5);
    ISSUE(ncclAllReduce(r.in, r.out, 5, ncclFloat, ncclSum, r.comm, r.stream));
    CHECK(ncclGroupStart());
    ISSUE(ncclSend(r.in, 9, ncclFloat, 0, r.comm, r.stream));
    ISSUE(ncclRecv(r.out, 9, ncclFloat, 0, r.comm, r.stream));
    CHECK(ncclGroupEnd());
  });
}

// Arguments that NCCL refuses. The numbers of the calls after them stay those of the other rank.
void Wrong() {
  Joined(2, [](const Rank& r, int number) {
    AllReduce(r, r.comm, 5);
    Refused(ncclBroadcast(r.in, r.in, 6, ncclFloat, 7, r.comm, r.stream));
    if (number == 0) Refused(ncclSend(r.in, 6, ncclFloat, 7, r.comm, r.stream));
    AllReduce(r, r.comm, 7);
  });
}

void Revoke() {
  Joined(2, [](const Rank& r, int) {
    AllReduce(r, r.comm, 5);
    r.Synchronize();
    CHECK(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT));
    Refused(ncclAllReduce(r.in, r.in, 6, ncclFloat, ncclSum, r.comm, r.stream));
  });
}

// One rank waits for the other, which never comes, until both give the communicator up.
void GiveUp(bool revoke) {
  Joined(2, [revoke](Rank& r, int number) {
    AllReduce(r, r.comm, 10);
    r.Synchronize();
    if (number == 0) AllReduce(r, r.comm, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (revoke) {
      CHECK(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT));
    } else {
      CHECK(ncclCommAbort(r.comm));
      r.comm = nullptr;
    }
  });
}

// A new communicator after one that was aborted.
void Abort() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  Joined(2, [&](Rank& r, int number) {
    AllReduce(r, r.comm, 5);
    r.Synchronize();
    CHECK(ncclCommAbort(r.comm));
    CHECK(ncclCommInitRank(&r.comm, 2, id, number));
    AllReduce(r, r.comm, 6);
  });
}

// Two groups of so many calls each, and one call behind them.
void BigGroups(size_t calls) {
  Joined(2, [calls](const Rank& r, int) {
    for (int group = 0; group < 2; ++group) {
      CHECK(ncclGroupStart());
      for (size_t count = 1; count <= calls; ++count) AllReduce(r, r.comm, count);
      CHECK(ncclGroupEnd());
    }
    AllReduce(r, r.comm, 77);
  });
}

// Calls of one communicator from several threads, one after the other, and over several streams.
void ManyThreads() {
  Joined(2, [](const Rank& r, int) {
    AllReduce(r, r.comm, 1);
    r.Synchronize();
    std::thread([&r] {
      r.Use();
      AllReduce(r, r.comm, 2);
      CHECK(ncclGroupStart());
      AllReduce(r, r.comm, 3);
      AllReduce(r, r.comm, 4);
      CHECK(ncclGroupEnd());
    }).join();
    cudaStream_t other = nullptr;
    CHECK(cudaStreamCreate(&other));
    CHECK(ncclGroupStart());
    AllReduce(r, r.comm, 10);
    ISSUE(ncclAllReduce(r.in, r.in, 20, ncclFloat, ncclSum, r.comm, other));
    ISSUE(ncclReduceScatter(r.in, r.in, 30, ncclHalf, ncclMax, r.comm, other));
    CHECK(ncclGroupEnd());
    CHECK(cudaDeviceSynchronize());
    for (cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread, cudaStream_t{}})
      ISSUE(ncclAllReduce(r.in, r.in, 40, ncclFloat, ncclSum, r.comm, stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamDestroy(other));
  });
}

// Every element type, custom reductions, registered memory.
void Types() {
  Joined(2, [](const Rank& r, int) {
    for (int type = 0; type < ncclNumTypes; ++type)
      ISSUE(ncclAllReduce(r.in, r.in, 11, static_cast<ncclDataType_t>(type), ncclSum, r.comm, r.stream));
    ncclRedOp_t scaled = ncclSum;
    float factor = 2;
    CHECK(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat, ncclScalarHostImmediate, r.comm));
    ISSUE(ncclAllReduce(r.in, r.in, 99, ncclFloat, scaled, r.comm, r.stream));
    ISSUE(ncclReduceScatter(r.in, r.in, 99, ncclFloat, ncclAvg, r.comm, r.stream));
    CHECK(ncclRedOpDestroy(scaled, r.comm));
    void* memory = nullptr;
    void* registered = nullptr;
    CHECK(ncclMemAlloc(&memory, 4096));
    CHECK(ncclCommRegister(r.comm, memory, 4096, &registered));
    ISSUE(ncclAllReduce(memory, memory, 99, ncclFloat, ncclSum, r.comm, r.stream));
    r.Synchronize();
    CHECK(ncclCommDeregister(r.comm, registered));
    CHECK(ncclMemFree(memory));
  });
}

int Run(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  CHECK(cudaSetDevice(0));
  if (scenario == "scalable") {
    Scalable();
  } else if (scenario == "named") {
    Named();
  } else if (scenario == "split") {
    Split();
  } else if (scenario == "split_in_groups") {
    SplitInGroups();
  } else if (scenario == "split_without_blocking") {
    SplitWithoutBlocking();
  } else if (scenario == "shrink") {
    Shrink();
  } else if (scenario == "many") {
    Many();
  } else if (scenario == "empty") {
    Empty();
  } else if (scenario == "alone") {
    Alone();
  } else if (scenario == "wrong") {
    Wrong();
  } else if (scenario == "revoke") {
    Revoke();
  } else if (scenario == "abort") {
    Abort();
  } else if (scenario == "abort_waiting" || scenario == "revoke_waiting") {
    GiveUp(scenario == "revoke_waiting");
  } else if (scenario == "big_groups" && argc == 3) {
    BigGroups(std::strtoul(argv[2], nullptr, 10));
  } else if (scenario == "threads") {
    ManyThreads();
  } else if (scenario == "types") {
    Types();
  } else {
    std::fprintf(stderr, "there is no scenario \"%s\"\n", scenario.c_str());
    return 2;
  }
  std::printf("%s: %d calls\n", scenario.c_str(), issued.load());
  return 0;
}

}  // namespace
}  // namespace hard_way

int main(int argc, char** argv) { return hard_way::Run(argc, argv); }
