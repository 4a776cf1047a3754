// How much of a run's logs has been read, for whoever shows it while people wait.
//
// Separate from the readers' interfaces: reports, timelines and tables each read a run several times, through
// several layers, and none of them cares. One observer per program; called by the thread that reads.
#pragma once

#include <cstdint>
#include <functional>

namespace gpuprobe::store {

// `observer` gets the size of each piece of a log that was read; empty: nobody wants to know.
void ObserveReading(std::function<void(uint64_t bytes)> observer);
void NoteRead(uint64_t bytes);

}  // namespace gpuprobe::store
