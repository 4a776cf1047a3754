// Adds variables to the program's environment while its threads may be reading it.
//
// setenv() is not safe here: it grows the array of variables with realloc(), and getenv() on another thread
// walks the array that realloc() has just freed. A library has no business doing that to a program that never
// calls setenv() itself. So we make a new array in our own memory, which is never freed, and publish it with
// one compare-and-swap of `environ`. A reader sees the old array or the new one, and both stay.
//
// The program may call setenv() at the same moment, under the C library's lock, which we cannot take. Two
// things can happen, and RepairEnvironment settles both a little later:
// - It stored into the old array after we copied it, so that its value is missing in ours. We compare the old
//   array with our copy and carry over what changed.
// - It published an array of its own right after ours, made from the old one, so that our variable is gone.
//   We add it again.
// The program's value always wins, but for one that was stored into the old array before the program made an
// array from ours, both before we looked; so we look at once, and then again and again for a second. Later
// changes by the program are safe: C libraries (glibc 2.31 to 2.41, musl) never free an array that they did
// not allocate, and copy ours when they need room.
//
// Thread: PublishVariable in the loader and on the starting thread, RepairEnvironment on the probe's own,
// which reads the program's arrays through the kernel so that freed memory is an error, not a crash.
// Allocation: one mapping for each new array. Failure: the variable is not set.
#pragma once

namespace gpuprobe::injector {

// Sets the variable unless the program has it. False: it is not set, and not by the program either.
bool PublishVariable(const char* name, const char* value) noexcept;

// Looks once more at every array that was replaced during the last second. Cheap when there was none.
void RepairEnvironment() noexcept;

// What was published so far is not looked at again: for unit tests.
void ForgetPublicationsForTest() noexcept;

}  // namespace gpuprobe::injector
