#include "injector/capture/cupti/node_sources.h"

#include <cstring>

#include "injector/capture/cupti/callbacks.h"

namespace gpuprobe::injector {

void NodeSources::Note(const void* record, size_t at, uint64_t node, uint32_t correlation,
                       BatchBuilder* builder) noexcept {
  auto* places = reinterpret_cast<Place*>(memory_.data());
  if (places == nullptr || graph_node_hooks.carried == nullptr) return;
  uint64_t source = 0;
  std::memcpy(&source, static_cast<const char*>(record) + at, sizeof(source));
  if (source == 0) return;
  Place& place = places[(node * 0x9e37'79b9'7f4a'7c15u) >> (64 - kHashBits)];
  const bool known = place.node == node;
  if (known && place.source == source && correlation >= place.first) return;
  const bool of_earlier_launch = known && correlation < place.first && place.source != source;
  if (!of_earlier_launch) place = {node, source, correlation, known && place.told};
  uint64_t plan = 0;
  uint32_t copy = 0;
  // A node that was reported when it was made is followed there.
  if (graph_node_hooks.carried(node, &plan, &copy)) return;
  if (!graph_node_hooks.carried(source, &plan, &copy) && !place.told) return;
  place.told = true;
  builder->Add(
      wire::PlanRow{.plan = plan, .graph_node = node, .from_correlation = correlation, .copy = copy});
}

}  // namespace gpuprobe::injector
