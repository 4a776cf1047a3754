// Decides a job's kinds of parallelism from what its communicators carry: which operations, how many
// elements, and where in the step.
//
// The unit is a group: the communicators that join the same ranks. Data and tensor parallelism over two ranks
// each are therefore two groups, and a loss that is averaged over a communicator of its own belongs to the
// group of the gradients. A group has one role, by these facts in this order:
//   all-to-all, or sends and receives   by what they exchange (exchanges.h)
//   scatters amid forward               tensor and sequence parallel: gradients are not scattered there
//   mostly reduces sizes that are       tensor parallel
//   also reduced amid forward
//   mostly scatters, and gathers ahead  sharded weights (FSDP)
//   of or amid passes
//   gathers once as many elements as    sharded optimizer state (ZeRO-1, 2): the weights after the update
//   it reduces or scatters
//   reduces or scatters                 gradients (DDP)
// Groups that carry next to nothing have no role. Amid a pass means inside its layers, by the order of
// launches (model/steps/communication_timing.h): a loss, a metric or updated weights come before or after.
//
// Example: 12 MiB are reduced in backward, 16 bytes gathered before forward, 4 bytes reduced after backward,
// all over the same ranks. The gather is no sharding, since nothing is scattered and 16 bytes are not the
// weights; the norm does not matter beside the gradients: data parallel. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collector/report/collectives.h"
#include "collector/report/communication.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

class Exchanges;

// Elements that a group carries, per rank and step; without steps, in all.
struct GroupTraffic {
  std::set<uint32_t> members = {};  // numbers of the ranks that report
  int ranks = 0;
  double reduced = 0;            // AllReduce; the same gradients of several micro-batches count once
  double reduced_in_layers = 0;  // the part of it of sizes that are also called amid forward
  double scattered = 0;          // ReduceScatter, likewise
  double scattered_in_layers = 0;
  double gathered = 0;             // AllGather
  double gathered_for_passes = 0;  // the part of it amid forward or backward, or ahead of forward
  double broadcast = 0;            // not for passes, as buffers are
  double exchanged = 0;            // all to all, sends and receives
};

// The roles of groups, in their order, by their collectives. `passes_known`: which kernels are forward's is.
std::vector<CommunicationRole> RolesOf(const std::vector<GroupTraffic>& groups, bool passes_known);

class Parallelism {
 public:
  // Of a program that only communicates: none.
  Parallelism() = default;
  Parallelism(const model::JobModel& job, const Exchanges& exchanges);

  CommunicationRole RoleOf(std::string_view op, const std::string& comm, TransferPattern transfers) const;
  // By communicator, 16 hex digits; without those of no role.
  const std::map<std::string, CommunicationRole>& roles() const { return roles_; }
  // In the order of their words.
  std::vector<CommunicationRole> Pattern() const;

 private:
  std::map<std::string, CommunicationRole> roles_;
  std::set<CommunicationRole> exchanges_;
};

// Whether the communicator's reductions are those of gradients.
bool ReducesGradients(CommunicationRole role);

// Bytes of each operation, of all; sends and receives are one.
std::map<std::string, double> BytesShareOf(const std::vector<CollectiveReport>& collectives);

}  // namespace gpuprobe::analysis
