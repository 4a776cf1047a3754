// Rows of GraphRuns: launches of CUDA graphs as a whole.
//
// Separate from records.h because they are recorded only where graphs' nodes are not.
#pragma once

#include "collector/model/records.h"

namespace gpuprobe::model {

struct GraphRunRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t graph;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint64_t correlation;
};

template <typename Visitor>
absl::Status ForEachGraphRun(const v1::Batch& batch, Visitor&& visit) {
  const v1::GraphRuns& m = batch.graph_runs();
  const int rows = internal::Rows(m.start_delta(), m.duration(), m.graph(), m.device(), m.context(),
                                  m.stream(), m.correlation_delta());
  if (rows < 0) return internal::Ragged("GraphRuns");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column graph(m.graph());
  const internal::Column device(m.device());
  const internal::Column context(m.context());
  const internal::Column stream(m.stream());
  const internal::Column correlation(m.correlation_delta());
  GraphRunRecord r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns;
    internal::Step(r.start_ns, start[i]);
    r.end_ns = r.start_ns + duration[i];
    r.graph = graph[i];
    r.device = device[i];
    r.context = context[i];
    r.stream = stream[i];
    internal::Step(r.correlation, correlation[i]);
    visit(r);
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::model
