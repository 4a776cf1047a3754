// Reports how much of a run's logs has been read, for a progress display.
//
// Reports, timelines and tables each read a run several times, through several layers that need not know. One
// observer per program; called by the thread that reads.
#pragma once

#include <cstdint>
#include <functional>

namespace gpuprobe::store {

// `observer` gets the size of each piece of a log that was read; empty: no observer.
void ObserveReading(std::function<void(uint64_t bytes)> observer);
void NoteRead(uint64_t bytes);

}  // namespace gpuprobe::store
