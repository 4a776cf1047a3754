// Somebody else's profiler plugin, with ours around it: NCCL has room for one.
//
// NCCL looks a plugin's table up by dlsym, through a relocation that patching.h leads to us. What it gets
// instead of the other plugin's table is one of the same version whose functions tell both. The other plugin
// sees the calls, contexts, handles and mask that it would see alone: events that NCCL tells only because we
// asked for them are kept from it, by the rule that NCCL itself has (ToldFor of plugin_abi.h), and so are
// handles of ours. A library that NCCL asks for a profiler and that has none (a network plugin) is answered
// with our own tables.
//
// Thread: any of NCCL's. Allocation: none of ours; a fixed pool of contexts. Failure: beyond
// kPluginCommunicators communicators, or when two different plugins of one version are there, the other
// plugin is left alone with NCCL.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

// What NCCL gets for its question after ncclProfiler_v<version> of a library, whose own answer is `table`
// (null if it has none): a table that goes in between, or null: what the library itself answers. `has_any`:
// it has some version of it.
const void* ChainPlugin(int version, const void* table, bool has_any) noexcept;

void ClearChainsForTest() noexcept;

}  // namespace gpuprobe::injector::nccl
