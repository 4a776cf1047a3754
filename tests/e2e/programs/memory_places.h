// Parts of memory_calls that are about where memory is and who holds it.
#pragma once

// Pools and graphs by the driver's calls.
void DriverForms();
// What is left in a context goes with its last reference.
void LastReference();
// Pools of the host and of managed memory, by their place and as the current ones.
void PoolsElsewhere();
// Physical memory that is bound to a multicast object lives on without its handle, until it is unbound or the
// object ends. The object has no memory.
void MulticastObjects();
void TilesOfSparseArrays();
