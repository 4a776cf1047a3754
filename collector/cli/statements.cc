#include "collector/cli/statements.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/output.h"
#include "collector/tables/database.h"

namespace gpuprobe::cli {

bool AreTyped() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

namespace {

// The first statement of `sql`, with its semicolon, which it loses; empty: none is complete.
std::string TakeStatement(std::string& sql) {
  for (size_t end = sql.find(';'); end != std::string::npos; end = sql.find(';', end + 1)) {
    std::string statement = sql.substr(0, end + 1);
    if (!tables::Database::IsComplete(statement)) continue;
    sql.erase(0, end + 1);
    return statement;
  }
  return "";
}

bool IsBlank(const std::string& sql) { return absl::StripAsciiWhitespace(sql).empty(); }

}  // namespace

int ForEachStatement(const std::function<bool(const std::string& sql)>& answer) {
  const bool typed = AreTyped();
  int count = 0;
  std::string sql;
  std::string line;
  while (true) {
    if (typed) {
      Print(IsBlank(sql) ? "sql> " : "...> ");
      std::fflush(stdout);
    }
    if (!std::getline(std::cin, line)) break;
    absl::StrAppend(&sql, line, "\n");
    for (std::string one = TakeStatement(sql); !one.empty(); one = TakeStatement(sql)) {
      ++count;
      if (!answer(one)) return count;
    }
  }
  if (typed) Print("\n");
  if (IsBlank(sql)) return count;
  answer(sql);
  return count + 1;
}

}  // namespace gpuprobe::cli
