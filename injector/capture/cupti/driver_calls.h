// Times the driver's slow functions from entry to exit: loading of modules, instantiation of graphs,
// registration and allocation of memory, contexts, streams, events.
//
// Example: a program that compiles in its first step calls cuModuleLoadData 214 times; each call becomes one
// row with its function, duration and result. Some of the functions are also called thousands of times a step
// and return at once, so calls of less than kSlowDriverCallNs leave nothing. A function that is called inside
// another of the list (same correlation id) is part of it. Thread: the application's, inside a guard.
// Allocation: none. Failure: a call that never returns, or that ends by a jump, makes no row; a signal
// handler that calls a listed function inside of another makes a row, and the interrupted call does not.
#pragma once

namespace gpuprobe::injector {

// Adds the hooks to the callback table; before the session chooses its callbacks.
void AddDriverCallHooks() noexcept;

}  // namespace gpuprobe::injector
