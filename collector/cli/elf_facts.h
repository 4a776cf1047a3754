// Reads what the dynamic loader will do with a program: its interpreter and the libraries that it names.
//
// Files are untrusted: every read is bounded, and every count or offset in the file is checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::cli {

struct ElfFacts {
  bool same_architecture = false;      // the rest is read only if so
  std::string interpreter;             // empty: statically linked
  std::vector<std::string> libraries;  // DT_NEEDED, at most 512
  std::string search_path;             // DT_RUNPATH, else DT_RPATH, as it stands there
};

// From an open file. Nothing if it is not an ELF file, or an inconsistent one.
std::optional<ElfFacts> ReadElfFacts(int fd);

// Of the symbols with these names that the file defines, in its dynamic or its full table: where each begins
// in the file. Empty if there are none, or no tables.
std::map<std::string, uint64_t> FindSymbols(int fd, const std::vector<std::string>& names);

}  // namespace gpuprobe::cli
