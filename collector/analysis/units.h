// Formats numbers for people, with their unit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpuprobe::analysis {

std::string Count(uint64_t value);  // 3,912,441
std::string Duration(double ns);    // 812 ns, 2.20 us, 38.1 ms, 84.1 s
std::string Span(double ns);        // of what is far off: 84.1 s, 12 min, 5.2 h, 31 days
// Two of one unit, with as many digits as it takes to tell them apart: 17.04 ms, 16.97 ms.
std::pair<std::string, std::string> Durations(double a_ns, double b_ns);
std::string Bytes(uint64_t bytes);                       // 512 B, 25.0 MiB, 41.2 GiB
std::string Rate(double gbytes_per_s);                   // 20.9 GB/s; 0.63 MB/s below a tenth
std::string Percent(double share);                       // 9.2 %
std::string Listed(std::span<const std::string> names);  // 2, 9 and 17
// Ascending ranks as people list them, "0-3, 7": runs of them, at most `most`, then "...".
std::string RankList(std::span<const int> ranks, size_t most);
// A demangled function in at most `width` characters: without its parameters, then without its namespaces,
// when it is longer.
std::string KernelName(const std::string& name, size_t width);
// So, of several: what would read alike and is not is cut in the middle, so that the difference shows.
std::vector<std::string> KernelNames(const std::vector<std::string>& names, size_t width);
// `text` cut to `width` characters, with "..." where it was cut.
std::string Shorten(const std::string& text, size_t width);

}  // namespace gpuprobe::analysis
