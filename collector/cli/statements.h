// SQL statements that are typed, or come from a file: each ends with a semicolon.
#pragma once

#include <functional>
#include <string>

namespace gpuprobe::cli {

// Calls `answer` for each of standard input, until it ends or `answer` is false; the last one needs no
// semicolon. On a terminal a prompt asks for them. Returns how many there were.
int ForEachStatement(const std::function<bool(const std::string& sql)>& answer);
// Whether a person types them.
bool AreTyped();

}  // namespace gpuprobe::cli
