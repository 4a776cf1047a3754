#include "tests/e2e/programs/random_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace random_collectives {
namespace {

constexpr int kTypes = 12;
constexpr size_t kMaxCount = 8192;
constexpr int kMaxComms = 10;
constexpr int kMaxGraphs = 6;
constexpr int kMaxExecs = 8;

struct Comm {
  int id = 0;
  bool blocking = true;
  int made_from = 0;      // children so far, of which those that left ranks out count
  bool divisible = true;  // all ranks have seen the same children
};

struct Graph {
  int id = 0;
  Tree tree;
  std::set<int> comms;
};

class Maker {
 public:
  explicit Maker(const PlanOptions& options) : options_(options), random_(options.seed) {}

  Plan Make() {
    MakeWorld();
    for (int i = 0; i < options_.steps; ++i) AddStep();
    while (!execs_.empty()) DropExec(Below(execs_.size()));
    while (!graphs_.empty()) DropGraph(Below(graphs_.size()));
    while (!comms_.empty()) End(Below(comms_.size()));
    return std::move(plan_);
  }

 private:
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  int Number(int bound) { return static_cast<int>(Below(static_cast<size_t>(bound))); }
  bool Chance(int percent) { return Number(100) < percent; }

  Step& Add(StepKind kind) {
    plan_.steps.push_back({});
    plan_.steps.back().kind = kind;
    plan_.steps.back().salt = random_();
    return plan_.steps.back();
  }

  const std::vector<int>& Members(int comm) const { return plan_.members.at(comm); }

  int NewId(std::vector<int> members, bool blocking) {
    const int id = next_comm_++;
    plan_.members[id] = std::move(members);
    comms_.push_back({.id = id, .blocking = blocking});
    return id;
  }

  std::vector<int> AllRanks() {
    std::vector<int> all(static_cast<size_t>(options_.ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  NewComm FromId(std::vector<int> members) {
    NewComm made;
    const bool may_be_all = options_.one_thread;
    const int way = Number(may_be_all ? 5 : 4);
    made.way = way == 0   ? NewComm::Way::kRank
               : way == 1 ? NewComm::Way::kScalable
               : way == 4 ? NewComm::Way::kAll
                          : NewComm::Way::kConfig;
    // Those of one group are all of one sort.
    made.blocking = blocking_;
    if (!blocking_) made.way = NewComm::Way::kConfig;
    made.members = members;
    made.id = plan_.unique_ids++;
    if (made.way == NewComm::Way::kScalable) ++plan_.unique_ids;
    made.comm = NewId(std::move(members), made.blocking);
    return made;
  }

  void MakeWorld() { Add(StepKind::kMake).made.push_back(FromId(AllRanks())); }

  std::vector<int> SomeRanks() {
    std::vector<int> ranks = AllRanks();
    std::shuffle(ranks.begin(), ranks.end(), random_);
    ranks.resize(1 + Below(ranks.size()));
    return ranks;
  }

  NewComm Split(Comm& parent) {
    const std::vector<int> members = Members(parent.id);
    NewComm made;
    made.way = NewComm::Way::kSplit;
    made.parent = parent.id;
    made.blocking = parent.blocking;
    made.color_count = 1 + Number(3);
    std::vector<std::vector<std::pair<int, int>>> of_color(static_cast<size_t>(made.color_count));
    for (size_t i = 0; i < members.size(); ++i) {
      const int color = Chance(15) ? -1 : Number(made.color_count);
      const int key = Number(5) - 2;
      made.colors.push_back(color);
      made.keys.push_back(key);
      if (color >= 0) of_color[static_cast<size_t>(color)].emplace_back(key, members[i]);
    }
    made.comm = next_comm_;
    for (auto& ranks : of_color) {
      std::stable_sort(ranks.begin(), ranks.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      std::vector<int> child;
      child.reserve(ranks.size());
      for (const auto& [key, rank] : ranks) child.push_back(rank);
      const bool empty = child.empty();
      NewId(std::move(child), made.blocking);
      if (empty) comms_.pop_back();
    }
    return made;
  }

  NewComm Shrink(Comm& parent) {
    const std::vector<int> members = Members(parent.id);
    NewComm made;
    made.way = NewComm::Way::kShrink;
    made.parent = parent.id;
    made.blocking = parent.blocking;
    for (size_t i = 0; i < members.size(); ++i) {
      if (Chance(40)) made.excluded.push_back(static_cast<int>(i));
    }
    if (made.excluded.size() == members.size()) made.excluded.pop_back();
    if (made.excluded.empty()) made.excluded.push_back(static_cast<int>(members.size()) - 1);
    for (size_t i = 0; i < members.size(); ++i) {
      if (std::find(made.excluded.begin(), made.excluded.end(), static_cast<int>(i)) == made.excluded.end())
        made.members.push_back(members[i]);
    }
    parent.divisible = false;  // the ranks that are left out have not seen this child
    made.comm = NewId(made.members, made.blocking);
    return made;
  }

  void MakeSome() {
    if (static_cast<int>(comms_.size()) >= kMaxComms) return End(Below(comms_.size()));
    Step& step = Add(StepKind::kMake);
    step.grouped = Chance(50);
    blocking_ = Chance(70);
    const int count = step.grouped ? 1 + Number(3) : 1;
    std::set<int> parents;
    for (int i = 0; i < count; ++i) {
      const int way = Number(10);
      const size_t before = comms_.size();
      const size_t at = Below(before);
      Comm parent = comms_[at];
      const bool usable = parent.divisible && parents.insert(parent.id).second &&
                          parent.id < first_of_step_ && parent.blocking == blocking_;
      if (way < 3 || !usable) {
        if (options_.processes && way < 3) continue;
        if (way < 3) step.made.push_back(FromId(Chance(30) ? AllRanks() : SomeRanks()));
        continue;
      }
      step.made.push_back(way < 8 || Members(parent.id).size() < 2 ? Split(parent) : Shrink(parent));
      comms_[at].divisible = parent.divisible;
    }
    first_of_step_ = next_comm_;
    if (step.made.empty()) plan_.steps.pop_back();
  }

  // What of the communicator is still there goes first.
  void End(size_t at) {
    const int id = comms_[at].id;
    for (size_t i = execs_.size(); i-- > 0;) {
      if (execs_[i].comms.count(id) != 0) DropExec(i);
    }
    for (size_t i = graphs_.size(); i-- > 0;) {
      if (graphs_[i].comms.count(id) != 0) DropGraph(i);
    }
    const int how = Number(10);
    if (how == 0) {
      Step& revoke = Add(StepKind::kRevoke);
      revoke.comm = id;
      Step& after = Add(StepKind::kBody);
      after.body.push_back(Bad(id));
    }
    Step& step = Add(how == 1 ? StepKind::kAbort : StepKind::kDestroy);
    step.comm = id;
    step.finalize = how > 5;
    comms_.erase(comms_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  Call AnyCall(int comm) {
    const auto ranks = static_cast<int>(Members(comm).size());
    Call call;
    call.comm = comm;
    call.op = static_cast<Op>(Number(kOps));
    if (call.op == Op::kSend && ranks == 1) call.op = Op::kShift;
    call.count = Chance(8) ? 0 : 1 + Below(Chance(70) ? 300 : kMaxCount);
    call.type = Chance(50) ? 7 : Number(kTypes);
    call.reduction = Chance(12) ? kOwnReduction : Number(5);
    call.root = Number(ranks);
    call.peer = ranks == 1 ? 0 : (call.root + 1 + Number(ranks - 1)) % ranks;
    call.in_place = Chance(40);
    call.salt = random_();
    return call;
  }

  Item CallItem(int comm) { return {.kind = ItemKind::kCall, .call = AnyCall(comm), .salt = random_()}; }
  Item Bad(int comm) { return {.kind = ItemKind::kBadCall, .call = AnyCall(comm), .salt = random_()}; }
  Item Of(ItemKind kind, int comm) { return {.kind = kind, .call = {.comm = comm}, .salt = random_()}; }

  int AnyOf(const std::vector<int>& comms) { return comms[Below(comms.size())]; }

  // A group, maybe with groups inside, over some of the communicators.
  void Group(std::vector<int> comms, Body& body, bool captured) {
    const int how = captured ? 9 : Number(14);  // 0: simulated, 1: refused
    if (how == 1) comms = {AnyOf(comms)};       // all of its ranks lose the whole group
    const size_t begin = body.size();
    body.push_back(Of(ItemKind::kGroupStart, 0));
    const int calls = 1 + Number(6);
    int depth = 1;
    for (int i = 0; i < calls; ++i) {
      if (Chance(20) && depth < 4) {
        body.push_back(Of(ItemKind::kGroupStart, 0));
        ++depth;
      }
      body.push_back(CallItem(AnyOf(comms)));
      // NCCL launches by communicator, in the order of their first calls: that has to be the same on all
      // ranks.
      if (comms.size() > 1 && body.back().call.op == Op::kSend) body.back().call.op = Op::kShift;
      if (Chance(20) && depth > 1) {
        body.push_back(Of(Chance(10) && !captured ? ItemKind::kSimulateEnd : ItemKind::kGroupEnd, 0));
        --depth;
      }
    }
    if (how == 1) {
      const size_t at = begin + 1 + Below(body.size() - begin);
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), Bad(AnyOf(comms)));
      body[at].salt = body[at].salt / 4 * 4 + 3;  // on every rank
    }
    for (; depth > 1; --depth) body.push_back(Of(ItemKind::kGroupEnd, 0));
    body.push_back(Of(how == 0 ? ItemKind::kSimulateEnd : ItemKind::kGroupEnd, 0));
  }

  Body SomeBody(const std::vector<int>& comms, int items, bool captured) {
    Body body;
    for (int i = 0; i < items; ++i) {
      const int what = Number(100);
      const int comm = AnyOf(comms);
      if (what < 35) {
        body.push_back(CallItem(comm));
      } else if (what < 60) {
        Group(comms, body, captured);
      } else if (what < 70) {
        body.push_back(Of(ItemKind::kKernel, comm));
      } else if (what < 77) {
        body.push_back(Of(ItemKind::kCopy, comm));
      } else if (what < 82) {
        body.push_back(Of(ItemKind::kFill, comm));
      } else if (!captured) {
        constexpr ItemKind kOthers[] = {ItemKind::kEvent,       ItemKind::kAllocate, ItemKind::kRange,
                                        ItemKind::kAsk,         ItemKind::kRange,    ItemKind::kRegister,
                                        ItemKind::kSynchronize, ItemKind::kBadCall};
        const ItemKind kind = kOthers[Below(std::size(kOthers))];
        body.push_back(kind == ItemKind::kBadCall ? Bad(comm) : Of(kind, comm));
      }
    }
    return body;
  }

  std::vector<int> Ids() {
    std::vector<int> ids;
    for (const Comm& comm : comms_) ids.push_back(comm.id);
    return ids;
  }

  bool IsBlocking(int id) const {
    return std::any_of(comms_.begin(), comms_.end(),
                       [id](const Comm& comm) { return comm.id == id && comm.blocking; });
  }

  std::vector<int> SomeComms(size_t most) {
    std::vector<int> ids = Ids();
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(std::min(ids.size(), 1 + Below(most)));
    // NCCL takes either sort in a group.
    std::erase_if(ids, [&](int id) { return IsBlocking(id) != IsBlocking(ids.front()); });
    return ids;
  }

  void Parallel() {
    std::vector<int> ids = SomeComms(kPlainStreams);
    // The default streams of two threads have one name, and a thread of NCCL's launches on either.
    if (!IsBlocking(ids.front())) ids.resize(1);
    Step& step = Add(StepKind::kParallel);
    for (const int id : ids) {
      Step::Branch branch;
      branch.comm = id;
      for (int i = 1 + Number(3); i > 0; --i) branch.bodies.push_back(SomeBody({id}, 1 + Number(5), false));
      if (Chance(50)) {
        branch.tree = SomeTree({id}, 0);
        branch.launches = 1 + Number(3);
      }
      step.branches.push_back(std::move(branch));
    }
  }

  Tree SomeTree(const std::vector<int>& comms, int depth) {
    Tree tree;
    tree.body.push_back(CallItem(AnyOf(comms)));
    const Body more = SomeBody(comms, 1 + Number(4), true);
    tree.body.insert(tree.body.end(), more.begin(), more.end());
    tree.forked = Chance(30);
    tree.cloned = Chance(25);
    tree.moved = Chance(25);
    for (int i = depth < 2 && Chance(30) ? 1 + Number(2) : 0; i > 0; --i)
      tree.children.push_back(SomeTree(comms, depth + 1));
    return tree;
  }

  // Other calls in the same places, so that an executable graph can be updated from it.
  Tree Variant(const Tree& tree) {
    Tree variant = tree;
    int depth = 0;
    for (Item& item : variant.body) {
      if (item.kind == ItemKind::kGroupStart) ++depth;
      if (item.kind == ItemKind::kGroupEnd) --depth;
      if (item.kind != ItemKind::kCall || item.call.count == 0) continue;
      Call& call = item.call;
      call.count = 1 + Below(kMaxCount);
      const auto ranks = static_cast<int>(Members(call.comm).size());
      if (depth != 0 || ranks == 1 || call.op == Op::kShift || call.op == Op::kSend) continue;
      call.op = static_cast<Op>(Number(static_cast<int>(Op::kShift)));
      call.type = Number(kTypes);
      call.root = Number(ranks);
    }
    for (Tree& child : variant.children) child = Variant(child);
    return variant;
  }

  static void Collect(const Tree& tree, std::set<int>& comms) {
    for (const Item& item : tree.body) {
      if (item.kind != ItemKind::kGroupStart && item.kind != ItemKind::kGroupEnd)
        comms.insert(item.call.comm);
    }
    for (const Tree& child : tree.children) Collect(child, comms);
  }

  void Build() {
    if (static_cast<int>(graphs_.size()) >= kMaxGraphs) return DropGraph(Below(graphs_.size()));
    Graph graph;
    graph.id = next_graph_++;
    graph.tree = SomeTree(SomeComms(3), 0);
    Collect(graph.tree, graph.comms);
    Step& step = Add(StepKind::kBuild);
    step.graph = graph.id;
    step.tree = graph.tree;
    step.comms = graph.comms;
    step.jointly = Chance(50);
    graphs_.push_back(std::move(graph));
    Instantiate();
  }

  void Instantiate() {
    if (graphs_.empty()) return;
    if (static_cast<int>(execs_.size()) >= kMaxExecs) return DropExec(Below(execs_.size()));
    Graph exec = graphs_[Below(graphs_.size())];
    Step& step = Add(StepKind::kInstantiate);
    step.graph = exec.id;
    exec.id = next_exec_++;
    step.exec = exec.id;
    step.comms = exec.comms;
    execs_.push_back(std::move(exec));
  }

  void Update() {
    if (execs_.empty()) return;
    Graph& exec = execs_[Below(execs_.size())];
    exec.tree = Variant(exec.tree);
    Step& step = Add(StepKind::kUpdate);
    step.exec = exec.id;
    step.tree = exec.tree;
    step.comms = exec.comms;
    step.jointly = Chance(50);
  }

  void Launch() {
    if (execs_.empty()) return Build();
    const Graph& exec = execs_[Below(execs_.size())];
    Step& step = Add(StepKind::kLaunch);
    step.exec = exec.id;
    step.comms = exec.comms;
    step.times = 1 + Number(3);
    step.on_thread = Chance(30);
  }

  void DropGraph(size_t at) {
    Step& step = Add(StepKind::kDropGraph);
    step.graph = graphs_[at].id;
    step.comms = graphs_[at].comms;
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void DropExec(size_t at) {
    Step& step = Add(StepKind::kDropExec);
    step.exec = execs_[at].id;
    step.comms = execs_[at].comms;
    execs_.erase(execs_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void AddStep() {
    const int what = Number(100);
    if (comms_.empty()) return MakeSome();
    if (what < 12) return MakeSome();
    if (what < 16 && comms_.size() > 1) return End(Below(comms_.size()));
    if (what < 50) {
      Body body = SomeBody(SomeComms(4), 1 + Number(8), false);
      Add(StepKind::kBody).body = std::move(body);
      return;
    }
    if (what < 58) return Parallel();
    if (what < 60) {
      Add(StepKind::kRefusedMake).comm = AnyOf(Ids());
      return;
    }
    if (what < 68) return Build();
    if (what < 73) return Instantiate();
    if (what < 78) return Update();
    if (what < 94) return Launch();
    if (what < 97 && !graphs_.empty()) return DropGraph(Below(graphs_.size()));
    if (!execs_.empty()) DropExec(Below(execs_.size()));
  }

  const PlanOptions options_;
  std::mt19937_64 random_;
  Plan plan_;
  std::vector<Comm> comms_;  // that are there
  std::vector<Graph> graphs_;
  std::vector<Graph> execs_;
  int next_comm_ = 0;
  int first_of_step_ = 1;  // communicators from here on are made in this step
  bool blocking_ = true;   // those that are made next
  int next_graph_ = 0;
  int next_exec_ = 0;
};

}  // namespace

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t value = a * 0x9e3779b97f4a7c15U ^ (b + 0x7f4a7c15U) * 0xc4ceb9fe1a85ec53U;
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdU;
  return value ^ (value >> 29);
}

Plan MakePlan(const PlanOptions& options) { return Maker(options).Make(); }

}  // namespace random_collectives
