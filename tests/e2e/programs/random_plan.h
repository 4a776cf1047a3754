// A random but valid program of NCCL calls, as a list of steps that every rank walks through in the same
// order.
//
// random_collectives.cc carries it out. The plan depends only on the seed, so that each thread, or each
// process, makes its own and all are equal. The work could be done one piece after the other in the list's
// order: whatever stream each rank uses, no rank waits forever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace random_collectives {

enum class Op {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kBcast,
  kReduce,
  kAlltoAll,
  kGather,
  kScatter,
  kShift,
  kSend
};
inline constexpr int kOps = 11;

// Streams of a rank: three that do not block, one that does, and the default ones.
inline constexpr int kPlainStreams = 3;
inline constexpr int kStreams = 7;  // .. the blocking one, null, cudaStreamLegacy, cudaStreamPerThread

struct Call {
  Op op = Op::kAllReduce;
  int comm = 0;
  size_t count = 0;
  int type = 0;
  int reduction = 0;  // ncclRedOp_t; kOwnReduction: one made for the call
  int root = 0;       // a shift: by how many ranks; a send: from this rank ..
  int peer = 0;       // .. to this one
  bool in_place = false;
  uint64_t salt = 0;  // what each rank chooses its stream by
};
inline constexpr int kOwnReduction = -1;

enum class ItemKind {
  kCall,
  kGroupStart,
  kGroupEnd,
  kSimulateEnd,
  kBadCall,
  kKernel,
  kCopy,
  kFill,
  kEvent,
  kAllocate,
  kRange,
  kAsk,
  kRegister,
  kSynchronize
};

struct Item {
  ItemKind kind = ItemKind::kKernel;
  Call call;          // kCall, kBadCall; kAsk and kRegister: its communicator
  uint64_t salt = 0;  // of the others
};
using Body = std::vector<Item>;

// A graph: what is captured, then the children that are added one after another.
struct Tree {
  Body body;
  std::vector<Tree> children;
  bool cloned = false;  // the clone takes its place
  bool moved = false;   // into the parent, rather than copied
  bool forked = false;  // over two streams
};

struct NewComm {
  enum class Way { kRank, kConfig, kScalable, kAll, kSplit, kShrink } way = Way::kRank;
  int comm = 0;  // kSplit: of the first color; the others follow
  int parent = 0;
  int id = 0;  // which unique id
  bool blocking = true;
  std::vector<int> members;  // ranks of the program, by rank of the communicator; kSplit: unused
  // kSplit: by rank of the parent; -1: in none.
  std::vector<int> colors;
  std::vector<int> keys;
  int color_count = 0;
  std::vector<int> excluded;  // kShrink: ranks of the parent
};

enum class StepKind {
  kMake,
  kBody,
  kParallel,
  kRefusedMake,
  kDestroy,
  kAbort,
  kRevoke,
  kBuild,
  kInstantiate,
  kUpdate,
  kLaunch,
  kDropGraph,
  kDropExec
};

struct Step {
  StepKind kind = StepKind::kBody;
  uint64_t salt = 0;
  std::vector<NewComm> made;  // in one group, if there are several or `grouped`
  bool grouped = false;
  Body body;
  // kParallel: one thread each, on a communicator of its own.
  struct Branch {
    int comm = 0;
    std::vector<Body> bodies;
    Tree tree;  // captured, launched and dropped, unless empty
    int launches = 0;
  };
  std::vector<Branch> branches;
  int comm = 0;
  bool finalize = false;  // before it is destroyed
  int graph = 0;
  int exec = 0;
  Tree tree;
  std::set<int> comms;  // of the graph
  bool jointly = false;
  bool on_thread = false;  // of its own
  int times = 1;
};

struct Plan {
  std::vector<Step> steps;
  std::map<int, std::vector<int>> members;  // of each communicator, by its rank
  int unique_ids = 0;
};

struct PlanOptions {
  uint64_t seed = 1;
  int ranks = 4;
  int steps = 40;
  bool one_thread = false;  // drives all ranks: ncclCommInitAll
  bool processes = false;   // each rank is one
};

Plan MakePlan(const PlanOptions& options);

// As each rank chooses: the same for the same arguments.
uint64_t Mix(uint64_t a, uint64_t b);

}  // namespace random_collectives
