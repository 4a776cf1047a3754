// NCCL used in the ways that real programs use it, without device code. Which scenario is the argument; how
// NCCL is reached is decided when this is compiled and linked (hard_way_nccl.h).
//
// usage: hard_way operations | devices | threads | nested | pipeline | nonblocking | early | torn
//        hard_way copies PATH
//        hard_way member RANK RANKS FILE
// Says "<scenario>: <N> calls" and how many collectives, sends and receives it issued.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/programs/hard_way_nccl.h"
#include "tests/e2e/programs/hard_way_rank.h"

namespace hard_way {
namespace {

std::vector<Rank> RanksOfInitAll(int devices) {
  std::vector<Rank> ranks;
  ranks.reserve(static_cast<size_t>(devices));
  for (int device = 0; device < devices; ++device) ranks.emplace_back(device);
  std::vector<ncclComm_t> comms(ranks.size());
  CHECK(NCCL(CommInitAll)(comms.data(), devices, nullptr));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].comm = comms[i];
  return ranks;
}

void Destroy(const std::vector<Rank>& ranks) {
  for (const Rank& rank : ranks) {
    rank.Free();
    CHECK(NCCL(CommDestroy)(rank.comm));
  }
}

// The call on every rank, in one group, as one thread with several devices must.
void Together(const std::vector<Rank>& ranks, const std::function<void(const Rank&)>& call) {
  CHECK(NCCL(GroupStart)());
  for (const Rank& rank : ranks) {
    rank.Use();
    call(rank);
  }
  CHECK(NCCL(GroupEnd)());
}

// Every operation once, each with a count, type and root of its own, then three of different size in one
// group.
void Operations() {
  const std::vector<Rank> ranks = RanksOfInitAll(2);
  Together(ranks, [](const Rank& r) {
    ISSUE(NCCL(AllReduce)(r.in, r.out, 1001, ncclFloat, ncclSum, r.comm, r.stream));
  });
  Together(ranks,
           [](const Rank& r) { ISSUE(NCCL(AllGather)(r.in, r.out, 1002, ncclInt8, r.comm, r.stream)); });
  Together(ranks, [](const Rank& r) {
    ISSUE(NCCL(ReduceScatter)(r.in, r.out, 1003, ncclHalf, ncclMax, r.comm, r.stream));
  });
  Together(ranks,
           [](const Rank& r) { ISSUE(NCCL(Broadcast)(r.in, r.out, 1004, ncclDouble, 1, r.comm, r.stream)); });
  Together(ranks, [](const Rank& r) { ISSUE(NCCL(Bcast)(r.out, 1005, ncclInt64, 0, r.comm, r.stream)); });
  Together(ranks, [](const Rank& r) {
    ISSUE(NCCL(Reduce)(r.in, r.out, 1006, ncclBfloat16, ncclSum, 1, r.comm, r.stream));
  });
  int version = 0;
  CHECK(NCCL(GetVersion)(&version));
  if (version >= NCCL_VERSION(2, 28, 3)) {
    Together(ranks,
             [](const Rank& r) { ISSUE(NCCL(AlltoAll)(r.in, r.out, 1007, ncclUint8, r.comm, r.stream)); });
    Together(ranks,
             [](const Rank& r) { ISSUE(NCCL(Gather)(r.in, r.out, 1008, ncclInt32, 0, r.comm, r.stream)); });
    Together(ranks,
             [](const Rank& r) { ISSUE(NCCL(Scatter)(r.in, r.out, 1009, ncclUint32, 1, r.comm, r.stream)); });
  }
  Together(ranks, [](const Rank& r) {
    ISSUE(NCCL(Send)(r.in, 1010, ncclFloat, 1 - r.device, r.comm, r.stream));
    ISSUE(NCCL(Recv)(r.out, 1010, ncclFloat, 1 - r.device, r.comm, r.stream));
  });
  Together(ranks, [](const Rank& r) {
    for (const size_t count : {size_t{100}, size_t{300}, size_t{200}})
      ISSUE(NCCL(AllReduce)(r.in, r.out, count, ncclFloat, ncclSum, r.comm, r.stream));
  });
  Destroy(ranks);
}

void Devices() {
  const std::vector<Rank> ranks = RanksOfInitAll(8);
  for (size_t round = 1; round <= 3; ++round) {
    Together(ranks, [&](const Rank& r) {
      ISSUE(NCCL(AllReduce)(r.in, r.out, 1000 * round, ncclFloat, ncclSum, r.comm, r.stream));
    });
    Together(ranks, [&](const Rank& r) {
      ISSUE(NCCL(ReduceScatter)(r.in, r.out, 100 * round, ncclFloat, ncclSum, r.comm, r.stream));
    });
  }
  Destroy(ranks);
}

// One thread for each rank, with a device and a communicator of its own.
void OnThreads(int ranks, const std::function<void(Rank&, int)>& program, ncclConfig_t* config = nullptr) {
  ncclUniqueId id;
  CHECK(NCCL(GetUniqueId)(&id));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&, number] {
      Rank rank(number);
      if (config == nullptr) {
        CHECK(NCCL(CommInitRank)(&rank.comm, ranks, id, number));
      } else {
        ncclConfig_t own = *config;
        const ncclResult_t result = NCCL(CommInitRankConfig)(&rank.comm, ranks, id, number, &own);
        if (result != ncclInProgress) CHECK(result);
      }
      program(rank, number);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Threads() {
  OnThreads(8, [](Rank& r, int) {
    for (size_t round = 1; round <= 5; ++round)
      ISSUE(NCCL(AllReduce)(r.in, r.out, 1000 * round, ncclFloat, ncclSum, r.comm, r.stream));
    ISSUE(NCCL(AllGather)(r.in, r.out, 77, ncclFloat, r.comm, r.stream));
    r.Free();
    CHECK(NCCL(CommDestroy)(r.comm));
  });
}

// Groups inside a group, over two communicators and two streams on each device.
void Nested() {
  const std::vector<Rank> first = RanksOfInitAll(2);
  const std::vector<Rank> second = RanksOfInitAll(2);
  for (size_t round = 1; round <= 3; ++round) {
    CHECK(NCCL(GroupStart)());
    Together(first, [&](const Rank& r) {
      ISSUE(NCCL(AllReduce)(r.in, r.out, 1000 * round, ncclFloat, ncclSum, r.comm, r.stream));
      ISSUE(NCCL(AllReduce)(r.in, r.out, 500 * round, ncclFloat, ncclSum, r.comm, r.stream));
    });
    Together(second, [&](const Rank& r) {
      ISSUE(NCCL(AllGather)(r.in, r.out, 200 * round, ncclFloat, r.comm, r.stream));
      ISSUE(NCCL(Send)(r.in, 300 * round, ncclFloat, 1 - r.device, r.comm, r.stream));
      ISSUE(NCCL(Recv)(r.out, 300 * round, ncclFloat, 1 - r.device, r.comm, r.stream));
    });
    CHECK(NCCL(GroupEnd)());
  }
  Destroy(first);
  Destroy(second);
}

// Four stages, six micro-batches forward and back again, no groups.
void Pipeline() {
  constexpr int kStages = 4;
  constexpr size_t kMicroBatches = 6;
  OnThreads(kStages, [](Rank& r, int stage) {
    for (size_t batch = 1; batch <= kMicroBatches; ++batch) {
      if (stage > 0) ISSUE(NCCL(Recv)(r.in, 256 * batch, ncclHalf, stage - 1, r.comm, r.stream));
      if (stage < kStages - 1) ISSUE(NCCL(Send)(r.in, 256 * batch, ncclHalf, stage + 1, r.comm, r.stream));
    }
    for (size_t batch = kMicroBatches; batch >= 1; --batch) {
      if (stage < kStages - 1) ISSUE(NCCL(Recv)(r.out, 128 * batch, ncclHalf, stage + 1, r.comm, r.stream));
      if (stage > 0) ISSUE(NCCL(Send)(r.out, 128 * batch, ncclHalf, stage - 1, r.comm, r.stream));
    }
    r.Free();
    CHECK(NCCL(CommDestroy)(r.comm));
  });
}

void NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto issue = [](ncclComm_t comm, ncclResult_t result) {
    if (result == ncclInProgress) return Await(comm);
    CHECK(result);
  };
  const auto program = [&](Rank& r, int) {
    Await(r.comm);
    for (size_t round = 1; round <= 3; ++round) {
      issue(r.comm, NCCL(AllReduce)(r.in, r.out, 1000 * round, ncclFloat, ncclSum, r.comm, r.stream));
      ++issued;
    }
    CHECK(NCCL(GroupStart)());
    for (size_t count = 1; count <= 2; ++count) {
      const ncclResult_t result =
          NCCL(AllReduce)(r.in, r.out, count * 10, ncclFloat, ncclSum, r.comm, r.stream);
      if (result != ncclInProgress) CHECK(result);
      ++issued;
    }
    issue(r.comm, NCCL(GroupEnd)());
    r.Free();
    issue(r.comm, NCCL(CommFinalize)(r.comm));
    CHECK(NCCL(CommDestroy)(r.comm));
  };
  OnThreads(2, program, &config);
}

// A group that begins before its calls are led to the probe and ends after it: for a module that is opened
// when CUDA is long up. No stream is made, which would have the probe look at once.
void Torn() {
  constexpr auto kUntilPatched = std::chrono::milliseconds(1500);
  std::vector<Rank> ranks;
  ranks.reserve(2);
  for (int device = 0; device < 2; ++device) ranks.emplace_back(device, nullptr);
  ncclComm_t comms[2] = {};
  CHECK(NCCL(CommInitAll)(comms, 2, nullptr));
  for (Rank& rank : ranks) rank.comm = comms[rank.device];
  CHECK(NCCL(GroupStart)());
  for (const size_t count : {size_t{100}, size_t{200}}) {
    for (const Rank& r : ranks) {
      r.Use();
      ISSUE(NCCL(AllReduce)(r.in, r.out, count, ncclFloat, ncclSum, r.comm, r.stream));
    }
    if (count == 100) std::this_thread::sleep_for(kUntilPatched);
  }
  CHECK(NCCL(GroupEnd)());
  Together(ranks, [](const Rank& r) {
    ISSUE(NCCL(AllReduce)(r.in, r.out, 300, ncclFloat, ncclSum, r.comm, r.stream));
  });
  Destroy(ranks);
}

// One process of several that no launcher told anything: the first one leaves the communicator's id in a
// file.
void Member(int rank, int ranks, const char* path) {
  ncclUniqueId id;
  if (rank == 0) {
    CHECK(NCCL(GetUniqueId)(&id));
    std::ofstream(std::string(path) + ".new", std::ios::binary).write(id.internal, sizeof(id.internal));
    std::rename((std::string(path) + ".new").c_str(), path);
  }
  std::ifstream file(path, std::ios::binary);
  while (rank != 0 && !file.is_open()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    file.open(path, std::ios::binary);
  }
  if (rank != 0) file.read(id.internal, sizeof(id.internal));
  Rank member(rank);
  CHECK(NCCL(CommInitRank)(&member.comm, ranks, id, rank));
  ISSUE(NCCL(AllReduce)(member.in, member.out, 1000, ncclFloat, ncclSum, member.comm, member.stream));
  member.Free();
  CHECK(NCCL(CommDestroy)(member.comm));
}

// Two copies of NCCL, each with two ranks on the same two devices; their calls alternate.
void Copies(const char* path) {
  CHECK(cudaSetDevice(0));  // as programs do: NCCL is looked up when the device is known
  const NcclTable copies[] = {LookUp(OpenNccl("libnccl.so.2")), LookUp(OpenNccl(path))};
  std::vector<Rank> ranks[2];
  for (int copy = 0; copy < 2; ++copy) {
    ncclUniqueId id;
    CHECK(copies[copy].GetUniqueId(&id));
    ranks[copy].reserve(2);
    for (int device = 0; device < 2; ++device) ranks[copy].emplace_back(device);
    CHECK(copies[copy].GroupStart());
    for (Rank& r : ranks[copy]) {
      r.Use();
      CHECK(copies[copy].CommInitRank(&r.comm, 2, id, r.device));
    }
    CHECK(copies[copy].GroupEnd());
  }
  for (size_t round = 1; round <= 4; ++round) {
    for (int copy = 0; copy < 2; ++copy) {
      CHECK(copies[copy].GroupStart());
      for (const Rank& r : ranks[copy]) {
        const size_t count = round * (copy == 0 ? 1000 : 10);
        r.Use();
        ISSUE(copies[copy].AllReduce(r.in, r.out, count, ncclFloat, ncclSum, r.comm, r.stream));
      }
      CHECK(copies[copy].GroupEnd());
    }
  }
  for (int copy = 0; copy < 2; ++copy) {
    for (const Rank& r : ranks[copy]) {
      r.Free();
      CHECK(copies[copy].CommDestroy(r.comm));
    }
  }
}

#ifndef HARD_WAY_DLSYM
// A copy of NCCL that the program opens by its path, before it has called the one that it is linked to: both
// are there when the program's objects are first looked at.
void LinkedAndACopy(const char* path) {
  void* const opened = OpenNccl(path);
  CHECK(cudaSetDevice(0));
  const NcclTable copy = LookUp(opened);
  std::vector<Rank> ranks[2];
  const auto make = [&](std::vector<Rank>& own, auto make_all) {
    own.reserve(2);
    for (int device = 0; device < 2; ++device) own.emplace_back(device);
    ncclComm_t comms[2] = {};
    CHECK(make_all(comms));
    for (Rank& r : own) r.comm = comms[r.device];
  };
  make(ranks[0], [](ncclComm_t* comms) { return ncclCommInitAll(comms, 2, nullptr); });
  make(ranks[1], [&](ncclComm_t* comms) { return copy.CommInitAll(comms, 2, nullptr); });
  for (size_t round = 1; round <= 4; ++round) {
    CHECK(ncclGroupStart());
    for (const Rank& r : ranks[0]) {
      r.Use();
      ISSUE(ncclAllReduce(r.in, r.out, 1000 * round, ncclFloat, ncclSum, r.comm, r.stream));
    }
    CHECK(ncclGroupEnd());
    CHECK(copy.GroupStart());
    for (const Rank& r : ranks[1]) {
      r.Use();
      ISSUE(copy.AllReduce(r.in, r.out, 10 * round, ncclFloat, ncclMax, r.comm, r.stream));
    }
    CHECK(copy.GroupEnd());
  }
  for (const Rank& r : ranks[0]) {
    r.Free();
    CHECK(ncclCommDestroy(r.comm));
  }
  for (const Rank& r : ranks[1]) {
    r.Free();
    CHECK(copy.CommDestroy(r.comm));
  }
}

#endif

// The functions are looked up before anything has initialised CUDA.
void Early() {
  const NcclTable early = LookUp(OpenNccl("libnccl.so.2"));
  std::vector<Rank> ranks;
  ranks.reserve(2);
  for (int device = 0; device < 2; ++device) ranks.emplace_back(device);
  ncclComm_t comms[2] = {};
  CHECK(early.CommInitAll(comms, 2, nullptr));
  for (size_t round = 1; round <= 3; ++round) {
    CHECK(early.GroupStart());
    for (const Rank& r : ranks) {
      r.Use();
      ISSUE(early.AllReduce(r.in, r.out, 1000 * round, ncclFloat, ncclSum, comms[r.device], r.stream));
    }
    CHECK(early.GroupEnd());
  }
  for (const Rank& r : ranks) {
    r.Free();
    CHECK(early.CommDestroy(comms[r.device]));
  }
}

int Run(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  if (scenario == "operations") {
    Operations();
  } else if (scenario == "devices") {
    Devices();
  } else if (scenario == "threads") {
    Threads();
  } else if (scenario == "nested") {
    Nested();
  } else if (scenario == "pipeline") {
    Pipeline();
  } else if (scenario == "nonblocking") {
    NonBlocking();
  } else if (scenario == "early") {
    Early();
  } else if (scenario == "torn") {
    Torn();
  } else if (scenario == "member" && argc == 5) {
    Member(std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
  } else if (scenario == "copies" && argc == 3) {
    Copies(argv[2]);
#ifndef HARD_WAY_DLSYM
  } else if (scenario == "linked_and_a_copy" && argc == 3) {
    LinkedAndACopy(argv[2]);
#endif
  } else {
    std::fprintf(stderr, "there is no scenario \"%s\"\n", scenario.c_str());
    return 2;
  }
  std::printf("%s: %d calls\n", scenario.c_str(), issued.load());
  return 0;
}

}  // namespace
}  // namespace hard_way

#if defined(HARD_WAY_MODULE)
extern "C" __attribute__((visibility("default"))) int HardWay(int argc, char** argv) {
  return hard_way::Run(argc, argv);
}
#else
int main(int argc, char** argv) { return hard_way::Run(argc, argv); }
#endif
