#include "collector/observe/system_call.h"

#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/records/system_calls.h"

namespace gpuprobe::observe {

std::string SystemCallOf(int folder, Calls calls) {
  const std::optional<SystemCall> call = ParseSystemCall(ReadSmallFile(folder, "syscall").value_or(""));
  if (!call.has_value()) return {};
  using Waits = model::SystemCallInfo::Waits;
  const model::SystemCallInfo known = model::SystemCallOf(call->number);
  if (known.waits == Waits::kForDescriptor) {
    char path[256];
    const ssize_t n = readlinkat(folder, absl::StrCat("fd/", call->first).c_str(), path, sizeof(path));
    return n <= 0 ? known.name : absl::StrCat(known.name, " ", std::string(path, static_cast<size_t>(n)));
  }
  return calls == Calls::kAll || known.waits == Waits::kForOutside ? known.name : "";
}

}  // namespace gpuprobe::observe
