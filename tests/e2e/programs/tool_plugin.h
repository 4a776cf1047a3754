// What a program calls of its profiling plug-in (tool_plugin.cc).
#pragma once

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): as C libraries name their functions
__attribute__((visibility("default"))) int tool_start(const char* how);
__attribute__((visibility("default"))) int tool_stop(const char* how);
// What it has seen.
__attribute__((visibility("default"))) int tool_kernels();
__attribute__((visibility("default"))) int tool_calls();
__attribute__((visibility("default"))) int tool_foreign();
// NOLINTEND(readability-identifier-naming)
}
