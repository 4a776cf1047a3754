// Encodes kernel records, a block at a time, into the columns of a Kernels message.
//
// Kernels are nearly all of the traffic, so a block is written column by column instead of record by record,
// which halves the instructions. Thread: the one that holds the builder's lock. Allocation: none. Failure:
// none; the columns have room for kMaxRows.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_rows.h"
#include "injector/rows/columns.h"
#include "injector/rows/varints.h"

namespace gpuprobe::injector {

struct KernelBlock {
  static constexpr uint32_t kRows = kVarintBlock;

  uint32_t rows = 0;
  uint64_t graph_any = 0;  // all graph nodes ored
  uint64_t start_ns[kRows];
  uint64_t end_ns[kRows];
  uint64_t graph_node[kRows];
  uint32_t site[kRows];
  uint32_t correlation[kRows];

  // At most kRows times.
  void Add(uint64_t start, uint64_t end, uint32_t site_id, uint32_t correlation_id, uint64_t node) noexcept {
    start_ns[rows] = start;
    end_ns[rows] = end;
    graph_node[rows] = node;
    site[rows] = site_id;
    correlation[rows] = correlation_id;
    graph_any |= node;
    ++rows;
  }
};

using KernelTable = ColumnTable<wire::KernelRow>;

// The table has room for the block's rows.
void PutKernels(const KernelBlock& block, KernelTable* table) noexcept;

}  // namespace gpuprobe::injector
