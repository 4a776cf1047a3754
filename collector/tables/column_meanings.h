// What each column of a run's tables is, for people who write SQL.
#pragma once

#include <string>
#include <string_view>

namespace gpuprobe::tables {

// Of a table of records or steps, of the report, or of a view. Empty: it says itself what it is.
std::string MeaningOf(std::string_view table, std::string_view column);

}  // namespace gpuprobe::tables
