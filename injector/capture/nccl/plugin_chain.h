// Wraps our profiler plugin around another one, because NCCL has room for only one.
//
// NCCL looks up a plugin's table by dlsym, through a relocation that patching.h redirects to us. Instead of
// the other plugin's table it gets one of the same version whose functions forward to both. The other plugin
// sees the calls, contexts, handles and mask that it would see alone: events that NCCL reports only because
// we asked for them are kept from it, by NCCL's own rule (ToldFor in plugin_abi.h), and so are our handles.
// When NCCL asks a library that has no profiler (a network plugin) for one, it gets our own tables.
//
// The other plugin may use any handle values: NCCL gets ours for contexts and groups, and the other plugin's
// own for all other events.
//
// Thread: any of NCCL's. Allocation: none of ours; fixed pools of contexts and group handles. Failure: beyond
// kPluginCommunicators communicators, or with two different plugins of one version, NCCL talks to the other
// plugin alone.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

// What NCCL's look-up of ncclProfiler_v<version> in a library returns: a table that forwards to `table`, the
// library's own (null if it has none); null: use the library's own answer. `has_any`: the library has some
// version of the table.
const void* ChainPlugin(int version, const void* table, bool has_any) noexcept;

}  // namespace gpuprobe::injector::nccl
