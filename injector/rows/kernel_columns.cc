#include "injector/rows/kernel_columns.h"

namespace gpuprobe::injector {

namespace {

uint64_t ZigZag(uint64_t difference) noexcept {
  return protozero::encode_zigzag64(static_cast<int64_t>(difference));
}

// `value_at(i)` for every row, as varints. Values of 2^28 and more, such as the gap after a pause of a
// quarter of a second, take the slow way, with their block.
template <typename ValueAt>
char* PutColumn(char* at, uint32_t rows, const ValueAt& value_at) noexcept {
  VarintBlock block;
  uint64_t any = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    const uint64_t value = value_at(i);
    any |= value;
    block.values[i] = static_cast<uint32_t>(value);
  }
  for (uint32_t i = rows; i % VarintBlock::kLanes != 0; ++i) block.values[i] = 0;
  if (any >> 28 == 0) return block.Write(at, rows, static_cast<uint32_t>(any));
  for (uint32_t i = 0; i < rows; ++i) at = WriteVarint(at, value_at(i));
  return at;
}

// Each value less the one before it.
template <typename Value>
char* PutDeltas(char* at, uint32_t rows, const Value* values, uint64_t before) noexcept {
  at = WriteVarint(at, ZigZag(values[0] - before));
  return PutColumn(at, rows - 1,
                   [values](uint32_t i) noexcept { return ZigZag(uint64_t{values[i + 1]} - values[i]); });
}

}  // namespace

void PutKernels(const KernelBlock& block, KernelTable* table) noexcept {
  if (block.rows == 0) return;
  using Tag = wire::KernelsTag;
  const uint32_t rows = block.rows;
  const uint32_t last = rows - 1;
  Column& start = (*table)[Tag::kStartDelta];
  start.end = WriteVarint(start.end, ZigZag(block.start_ns[0] - table->previous_time_ns()));
  start.end = PutColumn(start.end, last, [&block](uint32_t i) noexcept {
    return ZigZag(block.start_ns[i + 1] - block.end_ns[i]);
  });
  Column& duration = (*table)[Tag::kDuration];
  duration.end = PutColumn(duration.end, rows,
                           [&block](uint32_t i) noexcept { return block.end_ns[i] - block.start_ns[i]; });
  Column& site = (*table)[Tag::kSite];
  site.end = PutColumn(site.end, rows, [&block](uint32_t i) noexcept { return uint64_t{block.site[i]}; });
  Column& correlation = (*table)[Tag::kCorrelationDelta];
  correlation.end = PutDeltas(correlation.end, rows, block.correlation, correlation.previous);
  correlation.previous = block.correlation[last];

  // Most programs have no graphs: the column's zeros are written when the first value comes.
  Column& graph_node = (*table)[Tag::kGraphNodeDelta];
  if ((graph_node.any | block.graph_any) != 0) {
    if (graph_node.any == 0) {
      std::memset(graph_node.end, 0, table->rows());
      graph_node.end += table->rows();
    }
    graph_node.any |= block.graph_any;
    graph_node.end = PutDeltas(graph_node.end, rows, block.graph_node, graph_node.previous);
    graph_node.previous = block.graph_node[last];
  }
  // Only the column of graph nodes is ever left out.
  for (Column* column : {&start, &duration, &site, &correlation}) column->any = 1;
  table->AddRows(rows, block.end_ns[last]);
}

}  // namespace gpuprobe::injector
