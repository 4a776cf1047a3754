// Carries out a random plan of NCCL calls, kernels, copies, ranges and CUDA graphs (random_plan.h).
//
// usage: random_collectives SEED one|threads|pairs|processes [RANKS [STEPS]]
// One thread drives all ranks, each rank has a thread, two ranks share one, or each rank is a process of its
// own (then this one only starts them). Prints what depends on the seed alone: how many calls NCCL refused,
// and sums over the bytes that copies moved.

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/programs/random_body.h"
#include "tests/e2e/programs/random_communicators.h"
#include "tests/e2e/programs/random_graphs.h"
#include "tests/e2e/programs/random_plan.h"
#include "tests/e2e/programs/random_rank.h"

namespace random_collectives {
namespace {

void Parallel(const Crew& crew, const Step& step) {
  std::vector<std::thread> threads;
  threads.reserve(step.branches.size());
  for (size_t i = 0; i < step.branches.size(); ++i) {
    const Step::Branch& branch = step.branches[i];
    if (crew.Here(branch.comm).empty()) continue;
    threads.emplace_back([&crew, &step, &branch, i] {
      const Crew here{.shared = crew.shared,
                      .ranks = crew.Here(branch.comm),
                      .where = {.branch = static_cast<int>(i), .captured = false, .forked = false}};
      BodyRunner runner(here);
      for (size_t b = 0; b < branch.bodies.size(); ++b) {
        runner.Run(branch.bodies[b]);
        if (b == 0 && branch.launches != 0)
          RunGraph(here, branch.tree, {branch.comm}, branch.launches, step.salt + i);
      }
      for (const RankState* rank : here.ranks) {
        rank->Use();
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Do(const Crew& crew, BodyRunner& runner, const Step& step) {
  switch (step.kind) {
    case StepKind::kMake:
      return MakeCommunicators(crew, step);
    case StepKind::kBody:
      return runner.Run(step.body);
    case StepKind::kParallel:
      return Parallel(crew, step);
    case StepKind::kRefusedMake:
      return RefuseCommunicators(crew, step);
    case StepKind::kDestroy:
    case StepKind::kAbort:
    case StepKind::kRevoke:
      return EndCommunicator(crew, step);
    case StepKind::kUpdate:
      return UpdateGraph(crew, step);
    case StepKind::kLaunch:
      return LaunchGraph(crew, step);
    case StepKind::kBuild:
      return KeepGraph(crew, step);
    default:
      break;
  }
  for (RankState* rank : crew.ranks) {
    rank->Use();
    if (step.kind == StepKind::kInstantiate) InstantiateGraph(*rank, step);
    if (step.kind == StepKind::kDropGraph) DropGraph(*rank, step.graph);
    if (step.kind == StepKind::kDropExec) DropExec(*rank, step.exec);
  }
}

// One thread and the ranks that it drives. Every step leaves nothing pending.
void Walk(const Crew& crew) {
  BodyRunner runner(crew);
  for (const Step& step : crew.shared.plan.steps) Do(crew, runner, step);
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
      Walk({.shared = shared, .ranks = mine, .where = {}});
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
