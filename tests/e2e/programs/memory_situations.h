// What memory_calls does instead of its usual calls if it is given a name: one function for each.
#pragma once

// Asks for more than there is.
void Refused();
// Pools that grow, keep what they may, are trimmed and destroyed; the first of them is the device's own.
void PoolLevels();
// Small allocations between large ones: the level is highest now in the ones, now in the others, and of two
// kinds.
void Small();
// Memory of one device while another one is current, by pools and by physical memory; what a reset takes
// along.
void Devices();
// More physical memory at once than a program of today has: a caching allocator of 80 GiB in its smallest
// pieces.
void ManyHandles();
