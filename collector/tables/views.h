// Views of a run's database that answer common questions, and the indexes that joins need.
#pragma once

#include <span>

namespace gpuprobe::tables {

struct View {
  const char* name;
  const char* answers;  // for people: the question
  const char* sql;
};

std::span<const View> Views();
std::span<const char* const> Indexes();

}  // namespace gpuprobe::tables
