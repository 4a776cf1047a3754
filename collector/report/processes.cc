#include "collector/report/processes.h"

#include <csignal>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gpuprobe::analysis {
namespace {

struct NamedSignal {
  uint32_t signal;
  const char* name;
};

constexpr NamedSignal kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGSTOP, "SIGSTOP"},
    {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
constexpr char kOther[] = "signal ";

}  // namespace

std::string SignalName(uint32_t signal) {
  for (const NamedSignal& known : kSignals) {
    if (known.signal == signal) return known.name;
  }
  return absl::StrCat(kOther, signal);
}

std::optional<uint32_t> SignalOf(const std::string& name) {
  for (const NamedSignal& known : kSignals) {
    if (name == known.name) return known.signal;
  }
  uint32_t signal = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(name, kOther), &signal)) return signal;
  return std::nullopt;
}

}  // namespace gpuprobe::analysis
