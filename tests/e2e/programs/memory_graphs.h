// The part of memory_calls in which CUDA graphs allocate and release memory.
#pragma once

// Graphs that are captured and made by hand, of nodes of any kind, with children, and one that is refused.
void Graphs();
