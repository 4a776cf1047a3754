// Where the hosts of a job meet and what the job is called, as its launcher tells all of them.
//
//   gpuprobe run -- torchrun --nnodes 2 --rdzv-endpoint n1:29500 ...     n1, "n1:29500"
//   srun gpuprobe run -- python train.py                                 the step's first node, "slurm
//   4711.0"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "collector/hub/mirror.h"

namespace gpuprobe::recording {

inline constexpr char kHubVariable[] = "GPUPROBE_HUB";

// `spans_hosts`: whether the job does (several_hosts.h); one that does not has a meeting only if GPUPROBE_HUB
// names it, and a name that no other job has. nullopt: the launcher does not say, says a loopback name, or
// the variable is "off". InvalidArgument if that is neither this nor HOST or HOST:PORT.
absl::StatusOr<std::optional<hub::Meeting>> FindMeeting(
    const std::vector<std::string>& command, absl::FunctionRef<const char*(const char* name)> variable,
    bool spans_hosts);

// Whether this can be the hub's place: HOST, HOST:PORT or nothing.
bool IsHub(const std::string& text);

// The value of the first option of this name, given with "-" and looked for with "-" or "_" in it:
// "--rdzv-endpoint n1", "--rdzv_endpoint=n1". Empty: there is none.
std::string OptionOf(const std::vector<std::string>& command, std::string_view name);

// "n1" of "n[1-4,7],m3": the first of Slurm's list of nodes.
std::string FirstNode(const std::string& list);

// By its name, or by an address of ours that other hosts can reach. A loopback address is none: who names one
// has a tunnel there.
bool IsThisHost(const std::string& name);

}  // namespace gpuprobe::recording
