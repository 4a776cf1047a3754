#include "collector/analysis/steps/phase_report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/model/job/job_model.h"
#include "collector/model/steps/work_roles.h"

namespace gpuprobe::analysis {
namespace {

// The model's tree with names instead of ids, so that trees of several processes can be laid over each other.
struct NamedNode {
  model::Distribution gpu_ns;
  model::Distribution host_ns;
  uint64_t unclosed = 0;
  uint64_t first_start_ns = UINT64_MAX;
  std::map<std::string, std::unique_ptr<NamedNode>> children;
};

void Overlay(const model::ProcessModel& process, const model::PhaseNode& from, NamedNode& into);

// Ranges in which libraries mark their own work are not phases of the program: work within them belongs to
// the range around it.
void OverlayChildren(const model::ProcessModel& process, const model::PhaseNode& from, NamedNode& into) {
  for (const auto& [key, child] : from.children) {
    const auto& [domain, name] = key;
    if (domain != 0 && model::IsLibraryDomain(process.String(domain))) {
      OverlayChildren(process, *child, into);
      continue;
    }
    std::string text(process.String(name));
    if (name == 0) text = "(other ranges)";
    if (domain != 0) text = absl::StrCat(process.String(domain), ":", text);
    std::unique_ptr<NamedNode>& node = into.children[text];
    if (node == nullptr) node = std::make_unique<NamedNode>();
    Overlay(process, *child, *node);
  }
}

void Overlay(const model::ProcessModel& process, const model::PhaseNode& from, NamedNode& into) {
  into.gpu_ns.Merge(from.gpu_ns);
  into.host_ns.Merge(from.host_ns);
  into.unclosed += from.unclosed;
  into.first_start_ns = std::min(into.first_start_ns, from.first_start_ns);
  OverlayChildren(process, from, into);
}

void Flatten(const NamedNode& node, const std::string& path, int depth, std::vector<PhaseReport>& out) {
  std::vector<std::pair<uint64_t, const std::string*>> order;
  for (const auto& [name, child] : node.children) order.emplace_back(child->first_start_ns, &name);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [start, name] : order) {
    const NamedNode& child = *node.children.at(*name);
    PhaseReport r;
    r.name = *name;
    r.path = path.empty() ? *name : absl::StrCat(path, "/", *name);
    r.depth = depth;
    r.gpu_ns = child.gpu_ns.Summarize();
    r.host_ns = child.host_ns.Summarize();
    r.unclosed = child.unclosed;
    r.first_start_ns = start;
    const std::string child_path = r.path;
    out.push_back(std::move(r));
    Flatten(child, child_path, depth + 1, out);
  }
}

}  // namespace

std::vector<PhaseReport> PhasesOf(const model::ProcessModel& process) {
  NamedNode root;
  Overlay(process, process.ranges().root(), root);
  std::vector<PhaseReport> out;
  Flatten(root, "", 0, out);
  return out;
}

std::vector<PhaseReport> PhasesOf(const model::JobModel& job) {
  NamedNode root;
  for (const auto& process : job.processes()) Overlay(*process, process->ranges().root(), root);
  std::vector<PhaseReport> out;
  Flatten(root, "", 0, out);
  return out;
}

}  // namespace gpuprobe::analysis
