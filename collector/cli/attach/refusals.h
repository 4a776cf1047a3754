// Why a process cannot be attached to, as far as that is known without stopping it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace gpuprobe::cli::attach {

// One clause with the cause and the remedy; nullopt: nothing stands in the way. `library`: our own file,
// which the process must see under the same path; `socket_folder`: likewise, where it will look for the
// collector; empty: not checked.
std::optional<std::string> WhyNotAttachable(pid_t pid, const std::string& library,
                                            const std::string& socket_folder);

}  // namespace gpuprobe::cli::attach
