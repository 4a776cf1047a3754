#include "tests/e2e/programs/random_communicators.h"

#include <functional>
#include <memory>
#include <vector>

namespace random_collectives {
namespace {

// Where NCCL writes handles, until the group has ended.
struct Places {
  std::vector<std::unique_ptr<std::vector<ncclComm_t>>> all;
  ncclComm_t* New(size_t count) {
    all.push_back(std::make_unique<std::vector<ncclComm_t>>(count));
    return all.back()->data();
  }
};

void MakeAll(const Crew& crew, const NewComm& made, Places& places,
             std::vector<std::function<void()>>& after) {
  ncclComm_t* comms = places.New(made.members.size());
  CHECK(ncclCommInitAll(comms, static_cast<int>(made.members.size()), made.members.data()));
  after.push_back([&crew, comms, &made] {
    for (size_t i = 0; i < made.members.size(); ++i) {
      for (RankState* rank : crew.ranks) {
        if (rank->rank == made.members[i]) rank->comms[made.comm] = comms[i];
      }
    }
  });
}

void MakeOne(const Crew& crew, const NewComm& made, RankState& rank, Places& places,
             std::vector<std::function<void()>>& after) {
  const bool child = made.way == NewComm::Way::kSplit || made.way == NewComm::Way::kShrink;
  const int me = crew.shared.RankIn(child ? made.parent : made.comm, rank.rank);
  if (me < 0) return;
  rank.Use();
  ncclComm_t* comm = places.New(1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = made.blocking ? 1 : 0;
  const auto ranks = static_cast<int>(made.members.size());
  int becomes = made.comm;
  ncclUniqueId ids[2] = {};
  if (!child) ids[0] = crew.shared.ids.at(static_cast<size_t>(made.id));
  switch (made.way) {
    case NewComm::Way::kRank:
      Take(ncclCommInitRank(comm, ranks, ids[0], me));
      break;
    case NewComm::Way::kConfig:
      Take(ncclCommInitRankConfig(comm, ranks, ids[0], me, &config));
      break;
    case NewComm::Way::kScalable:
      ids[1] = crew.shared.ids.at(static_cast<size_t>(made.id) + 1);
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
      if (!crew.IsIn(rank, made.comm)) return;
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

}  // namespace

void MakeCommunicators(const Crew& crew, const Step& step) {
  Places places;
  std::vector<std::function<void()>> after;
  if (step.grouped) CHECK(ncclGroupStart());
  for (const NewComm& made : step.made) {
    if (made.way == NewComm::Way::kAll) {
      MakeAll(crew, made, places, after);
      continue;
    }
    const bool several = !step.grouped && crew.ranks.size() > 1;
    if (several) CHECK(ncclGroupStart());
    for (RankState* rank : crew.ranks) MakeOne(crew, made, *rank, places, after);
    if (several) Take(ncclGroupEnd());
  }
  if (step.grouped) Take(ncclGroupEnd());
  for (const auto& finish : after) finish();
}

void RefuseCommunicators(const Crew& crew, const Step& step) {
  for (RankState* rank : crew.Here(step.comm)) {
    const uint64_t choice = Mix(step.salt, static_cast<uint64_t>(rank->rank));
    if (choice % 2 == 0) continue;
    rank->Use();
    const ncclComm_t comm = rank->comms.at(step.comm);
    ncclComm_t made = nullptr;
    int me = crew.shared.RankIn(step.comm, rank->rank);
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

void EndCommunicator(const Crew& crew, const Step& step) {
  for (RankState* rank : crew.Here(step.comm)) {
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

}  // namespace random_collectives
