// The attempts of a hub's job side by side: how long a step of each took and where it went, and what is known
// to differ from the attempt before.
//
// Example: attempt 3 takes 3 % longer than attempt 2, and the comparison says that this is more than chance
// and that it is in exposed communication. It is that of `gpuprobe diff`, over means of all ranks: which rank
// or kernel it is, only the records can say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace gpuprobe::http {

struct JobList;
struct ListedJob;

// A step and its parts, in nanoseconds; of both attempts, with the 95 % interval of the difference.
struct ListedPart {
  std::string name;  // "total", "compute", "idle: input"
  double before_ns = 0;
  double ns = 0;
  double low_ns = 0;
  double high_ns = 0;
  bool significant = false;  // beyond chance
};

// A is the attempt before, B this one.
struct ComparedAttempt {
  uint64_t before = 0;               // its number
  std::string verdict;               // a sentence
  std::vector<std::string> changes;  // sentences, what to read first
  std::vector<ListedPart> parts;     // total first
};

// Means over the ranks, of a job that is over.
struct ListedSteps {
  uint64_t count = 0;
  double total_ns = 0;
  double compute_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
  std::optional<ComparedAttempt> compared;  // none: it is the first, or one of the two has no steps
};

// By how much a step is longer than in the attempt before, 0.03: 3 %. Nothing within chance.
std::optional<double> StepChange(const ListedJob& job);

nlohmann::ordered_json StepsJson(const ListedSteps& steps);
// Throws nlohmann::json::exception if it is something else.
ListedSteps StepsFromJson(const nlohmann::json& json);

// {"name": NAME, "user": USER, "attempts": [...]}, the latest first; empty: there is no such job. `user`
// empty: of whoever began a job of this name last.
std::string AttemptsJson(const JobList& list, const std::string& name, const std::string& user);
std::string AttemptsPage(const JobList& list, const std::string& name, const std::string& user);

}  // namespace gpuprobe::http
