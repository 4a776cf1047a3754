// Notes which driver function the program's main thread waits in (host_state.h).
#pragma once

namespace gpuprobe::injector {

// Hooks for the driver functions in which the host waits for the device; before the session chooses its
// callbacks. The hooks run on the application's threads, inside a guard, and allocate nothing.
void AddWaitHooks() noexcept;

}  // namespace gpuprobe::injector
