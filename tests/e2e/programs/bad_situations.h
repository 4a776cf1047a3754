// The parts of the program bad_situations: situations by name.
#pragma once

#include <string>

namespace bad_situations {

struct Situation {
  const char* name;
  void (*perform)(int number);
};

// Launches kernels and waits for them.
void Work(int count);
// A line on stdout, flushed.
void Print(const char* text);

// Situations that the program gets into by system calls. False: there is none of this name.
bool PerformSystem(const std::string& name, const std::string& value);

}  // namespace bad_situations
