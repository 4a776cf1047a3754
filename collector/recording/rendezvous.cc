#include "collector/recording/rendezvous.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/http/address.h"
#include "collector/hub/protocol.h"
#include "collector/hub/secret.h"
#include "collector/recording/several_hosts.h"
#include "proto/launchers.h"

namespace gpuprobe::recording {
namespace {

using Lookup = absl::FunctionRef<const char*(const char* name)>;

struct HostAndPort {
  std::string host;
  std::string port;  // empty: not given
};

// "n1:29500", "[fe80::1]:29500", "n1"
HostAndPort SplitHost(const std::string& text) {
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end == std::string::npos) return {};
    return {.host = text.substr(1, end - 1), .port = end + 2 < text.size() ? text.substr(end + 2) : ""};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || text.find(':') != colon) return {.host = text, .port = ""};
  return {.host = text.substr(0, colon), .port = text.substr(colon + 1)};
}

struct HubPlace {
  std::string host;
  uint16_t port = 0;
};

std::optional<HubPlace> HubPlaceOf(const std::string& text) {
  const HostAndPort place = SplitHost(text);
  uint32_t port = hub::kPort;
  const bool well = !place.host.empty() && (place.port.empty() || absl::SimpleAtoi(place.port, &port)) &&
                    port > 0 && port <= UINT16_MAX;
  if (!well) return std::nullopt;
  return HubPlace{.host = place.host, .port = static_cast<uint16_t>(port)};
}

std::string ValueOf(Lookup variable, const char* name) {
  const char* text = variable(name);
  return text == nullptr ? "" : text;
}

// "1234.0;tcp://10.0.0.1,10.1.0.1:45123", of Open MPI's mpirun.
std::string HostOfUri(const std::string& uri) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t start = uri.find(kTcp);
  if (start == std::string::npos) return "";
  const std::string rest = uri.substr(start + kTcp.size());
  return rest.substr(0, rest.find_first_of(",:;"));
}

hub::Meeting MeetingOfCommand(const std::vector<std::string>& command) {
  HostAndPort place = SplitHost(OptionOf(command, "--rdzv-endpoint"));
  for (const char* name : {"--master-addr", "--main-process-ip"}) {
    if (place.host.empty()) place.host = OptionOf(command, name);
  }
  for (const char* name : {"--master-port", "--main-process-port"}) {
    if (place.port.empty()) place.port = OptionOf(command, name);
  }
  return {.host = place.host,
          .job = absl::StrCat(place.host, ":", place.port, " ", OptionOf(command, "--rdzv-id"))};
}

hub::Meeting MeetingOfVariables(Lookup variable) {
  hub::Meeting meeting;
  const std::string job = ValueOf(variable, launchers::kSlurm.job);
  const std::string step = ValueOf(variable, "SLURM_STEP_ID");
  if (!job.empty() && !step.empty()) {
    meeting.host = FirstNode(ValueOf(variable, "SLURM_STEP_NODELIST"));
    meeting.job = absl::StrCat("slurm ", job, ".", step);
    return meeting;
  }
  meeting.host = ValueOf(variable, "MASTER_ADDR");
  meeting.job = absl::StrCat(meeting.host, ":", ValueOf(variable, "MASTER_PORT"), " ",
                             ValueOf(variable, launchers::kTorchrun.job));
  if (!meeting.host.empty()) return meeting;
  meeting.host = HostOfUri(ValueOf(variable, "OMPI_MCA_orte_hnp_uri"));
  meeting.job = absl::StrCat("mpi ", ValueOf(variable, launchers::kPmix.job));
  return meeting;
}

// "n1 torchrun 1f9a0c3e", of a job that is on this host only.
std::string NameOfOwnJob(const std::vector<std::string>& command) {
  constexpr size_t kRandomBytes = 4;
  const std::string program =
      command.empty() ? "" : std::filesystem::path(command.front()).filename().string();
  return absl::StrCat(NameOfThisHost(), " ", program, " ", hub::RandomHex(kRandomBytes));
}

bool IsLoopback(const std::string& host) { return host == "localhost" || http::NamesLoopback(host); }

}  // namespace

bool IsHub(const std::string& text) {
  return text.empty() || (text.find('/') == std::string::npos && HubPlaceOf(text).has_value());
}

std::string OptionOf(const std::vector<std::string>& command, std::string_view name) {
  for (size_t i = 0; i < command.size(); ++i) {
    std::string given = command[i].substr(0, command[i].find('='));
    for (size_t k = 2; k < given.size(); ++k) {
      if (given[k] == '_') given[k] = '-';
    }
    if (given != name) continue;
    if (given.size() < command[i].size()) return command[i].substr(given.size() + 1);
    return i + 1 < command.size() ? command[i + 1] : "";
  }
  return "";
}

std::string FirstNode(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket);
  const size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return "";
  const std::string rest = list.substr(close + 1);
  return absl::StrCat(list.substr(0, bracket), list.substr(bracket + 1, end - bracket - 1),
                      rest.substr(0, rest.find(',')));
}

bool IsThisHost(const std::string& name) {
  utsname names{};
  if (uname(&names) == 0) {
    const std::string own = names.nodename;
    if (own == name || own == name.substr(0, name.find('.')) || own.substr(0, own.find('.')) == name)
      return true;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  const auto freeing = absl::MakeCleanup([found] { freeaddrinfo(found); });
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char number[NI_MAXHOST] = "";
    if (getnameinfo(each->ai_addr, each->ai_addrlen, number, sizeof(number), nullptr, 0, NI_NUMERICHOST) !=
            0 ||
        http::Address{.host = number}.IsLoopback())
      continue;
    const int fd = socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool ours = fd >= 0 && bind(fd, each->ai_addr, each->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
    if (ours) return true;
  }
  return false;
}

absl::StatusOr<std::optional<hub::Meeting>> FindMeeting(const std::vector<std::string>& command,
                                                        Lookup variable, bool spans_hosts) {
  const std::string asked = ValueOf(variable, kHubVariable);
  if (asked == "off") return std::nullopt;
  hub::Meeting meeting = MeetingOfCommand(command);
  if (meeting.host.empty()) meeting = MeetingOfVariables(variable);
  // Attempts of a batch job have its number.
  if (const std::string job = ValueOf(variable, launchers::kSlurm.job);
      !job.empty() && meeting.job.find(job) == std::string::npos)
    absl::StrAppend(&meeting.job, " ", job);
  if (!asked.empty()) {
    const std::optional<HubPlace> place = HubPlaceOf(asked);
    if (!place.has_value())
      return absl::InvalidArgumentError(
          absl::StrCat(kHubVariable, " must be HOST, HOST:PORT or off, got \"", asked, "\""));
    meeting.host = place->host;
    meeting.first_port = place->port;
    meeting.ports = 1;
    meeting.alone = !spans_hosts;
    if (meeting.alone) meeting.job = NameOfOwnJob(command);
    return meeting;
  }
  // Hosts cannot meet on an address that each has for itself.
  if (!spans_hosts || meeting.host.empty() || IsLoopback(meeting.host)) return std::nullopt;
  meeting.first_port = hub::kPort;
  meeting.ports = hub::kPorts;
  return meeting;
}

}  // namespace gpuprobe::recording
