#include "collector/recording/all_hosts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/address.h"
#include "collector/http/encryption.h"
#include "collector/log/log.h"
#include "collector/recording/several_hosts.h"

namespace gpuprobe::recording {
namespace {

constexpr std::chrono::seconds kTroubleAfter{15};
// Of a job that was over before all hosts had found the hub.
constexpr std::chrono::milliseconds kJoinWait{2000};
// Records of a host may be dropped there while they are still here.
constexpr uint64_t kRoomFactor = 2;

bool HasRankZero(const model::JobModel& job) {
  return std::any_of(job.processes().begin(), job.processes().end(), [](const auto& process) {
    const v1::Identity& id = process->identity();
    return id.rank() == 0 && id.rank_source() != v1::RANK_SOURCE_NONE;
  });
}

// As the launcher says; 0: it does not.
size_t RanksOf(const model::JobModel& job) {
  size_t ranks = 0;
  for (const auto& process : job.processes())
    ranks = std::max<size_t>(ranks, process->identity().world_size());
  return ranks;
}

}  // namespace

AllHosts::AllHosts(Options options) : options_(std::move(options)), host_(NameOfThisHost()) {
  if (!options_.meeting.has_value()) return;
  const hub::Meeting& meeting = *options_.meeting;
  const absl::StatusOr<hub::Secret> secret =
      options_.token.has_value() ? hub::Secret::Find(*options_.token) : hub::Secret::Find();
  if (!secret.ok()) {
    secret_ = secret.status();
    if (!options_.quiet)
      log::SayForPeople(absl::StrCat("gpuprobe: hosts are not joined: ", secret.status().message(), "\n"));
    return;
  }
  if (options_.listens && !meeting.alone && IsThisHost(meeting.host)) Listen(meeting, *secret);
  if (!hub_.has_value()) mirror_.emplace(meeting, *secret, host_);
}

// Another `gpuprobe run` of this host may be the hub already, or become it meanwhile.
void AllHosts::Listen(const hub::Meeting& meeting, const hub::Secret& secret) {
  if (hub::FindHub(meeting, secret).ok()) return;
  absl::Status why;
  for (uint16_t i = 0; i < meeting.ports; ++i) {
    hub::Meeting at = meeting;
    at.first_port = static_cast<uint16_t>(meeting.first_port + i);
    at.ports = 1;
    // A name may have another address here than on other hosts (127.0.1.1).
    absl::StatusOr<http::Address> address = http::ParseAddress(at.Text());
    if (!address.ok()) address = http::Address{.host = "0.0.0.0", .port = at.first_port};
    absl::StatusOr<http::Listener> listener = http::Listener::Open(*address);
    if (!listener.ok()) {
      why.Update(listener.status());
      if (hub::FindHub(at, secret).ok()) return;
      continue;
    }
    absl::StatusOr<std::shared_ptr<const http::Encryption>> encryption = http::Encryption::Make();
    if (!encryption.ok()) {
      why = encryption.status();
      break;
    }
    const hub::Hub::Options options{
        .job = meeting.job, .host = host_, .most_bytes_of_host = kRoomFactor * options_.keep_bytes};
    hub_.emplace(options);
    endpoint_.emplace(*hub_, secret, *std::move(listener), *std::move(encryption));
    endpoint_->Start();
    return;
  }
  log::SayForPeople(absl::StrCat("gpuprobe: other hosts cannot join: ", why.message(), "\n"));
}

std::string AllHosts::FolderInDefault() const {
  return hub_.has_value() && options_.out.empty() ? host_ : "";
}

// At level calls, who sees all hosts decides which ranks record in full, and the others do not.
void AllHosts::JoinDetail(Recorder& recorder) {
  const bool decides = hub_.has_value() && has_several();
  recorder.SetWatchedElsewhere(decides || recorder.captures().are_elsewhere());
  if (!decides) return;
  std::optional<DetailWatch::Decision> decision = watch_->LookForDetail([&recorder] {
    return !recorder.captures().under_way() && recorder.captures().AllHere(recorder.CapturedProcesses());
  });
  if (decision.has_value()) recorder.Raise(*std::move(decision));
}

void AllHosts::JoinCaptures(Recorder& recorder) {
  recorder.captures().SetElsewhere(WhereCaptured());
  if (hub_.has_value()) recorder.captures().SetBoard(&hub_->captures(), directory_);
  if (!mirror_.has_value()) return;
  mirror_->SetProcesses(recorder.CapturedProcesses());
  const std::vector<v1::CaptureOrder> orders = mirror_->TakeOrders();
  for (const v1::DetailRaise& raise : mirror_->TakeRaises()) recorder.NoteRaise(raise);
  if (recorder.captures().under_way()) return;  // one of this host alone
  for (const v1::CaptureOrder& order : orders) recorder.Order(order.number(), order.capture());
}

// Empty: here, at the hub, or as none is to be found.
std::string AllHosts::WhereCaptured() const {
  if (!mirror_.has_value() || options_.meeting->alone) return "";
  const hub::Mirror::State state = mirror_->state();
  const bool is_found = state.phase != hub::Mirror::Phase::kSearching && !state.directory.empty();
  if (is_found)
    return absl::StrCat("this host has a part of the job; its hub captures all of it: on ", state.hub_host,
                        ", gpuprobe capture ", state.directory);
  const bool was_found = !state.directory.empty();
  if (was_found || std::chrono::steady_clock::now() >= began_ + kTroubleAfter) return "";
  return absl::StrCat("this host has a part of the job, and looks for its hub, ", options_.meeting->Text(),
                      "; try again in a moment");
}

void AllHosts::Tick(Recorder& recorder) {
  JoinCaptures(recorder);
  if (!recorder.heard_anything()) return;
  if (own_.empty()) {
    own_ = recorder.directory();
    const std::filesystem::path path(own_);
    folder_ = path.filename().string();
    if (hub_.has_value() || !options_.out.empty()) directory_ = path.parent_path().string();
    if (hub_.has_value()) hub_->SetDirectory(directory_, folder_);
    if (mirror_.has_value()) mirror_->Begin(own_, recorder.directory_for_hub());
  }
  const bool shows = hub_.has_value() ? hub_->others() > 0 || !options_.out.empty()
                                      : HasRankZero(recorder.job()) && !directory_.empty();
  const bool is_shown_elsewhere =
      mirror_.has_value() && mirror_->state().phase != hub::Mirror::Phase::kSearching;
  if (shows && !is_shown_elsewhere && !watch_.has_value()) {
    watch_.emplace(directory_, options_.marker, options_.hangs, options_.input, options_.layout);
    watch_->Begin();
  }
  JoinDetail(recorder);
  SayTrouble();
}

// Once, while the job runs: whoever wonders why a host is missing can still mend it.
void AllHosts::SayTrouble() {
  if (options_.quiet || !mirror_.has_value()) return;
  const hub::Mirror::State state = mirror_->state();
  if (state.phase == hub::Mirror::Phase::kSending && state.why.empty() && !said_hub_) {
    said_hub_ = true;
    log::SayForPeople(
        absl::StrCat("gpuprobe: ", state.hub_host,
                     options_.meeting->alone ? " receives this job\n" : " shows all hosts of this job\n"));
  }
  if (said_trouble_ || state.why.empty() || std::chrono::steady_clock::now() < began_ + kTroubleAfter) return;
  said_trouble_ = true;
  log::SayForPeople(absl::StrCat("gpuprobe: this host's records do not reach ", options_.meeting->Text(),
                                 ": ", state.why, "; they are in ", own_, ", and it tries again\n"));
}

bool AllHosts::AwaitsOthers(const Recorder& recorder, std::chrono::milliseconds since_end) {
  if (watch_.has_value()) watch_->Hurry();
  if (has_several() && watch_->HostsThatRecord().size() > 1) return true;
  if (!hub_.has_value() || !recorder.heard_anything() || since_end > kJoinWait) return false;
  const size_t heard = has_several() ? status().ranks.size() : recorder.processes();
  return heard < RanksOf(recorder.job());
}

void AllHosts::NoteVerdicts(Recorder& recorder) {
  if (!has_several()) return;
  for (const v1::HangVerdict& verdict : watch_->TakeVerdicts()) recorder.NoteVerdict(verdict);
}

void AllHosts::End(std::chrono::milliseconds patience) {
  if (mirror_.has_value()) sent_ = mirror_->End(patience);
  if (!watch_.has_value()) return;
  WholeJob& job = watch_->End();
  if (job.hosts().size() > 1) job_ = &job;
}

std::string AllHosts::WhereReported() const {
  if (options_.meeting.has_value() && options_.meeting->alone) return "";
  std::string shows = sent_.phase == hub::Mirror::Phase::kSearching || !sent_.all_sent ? "" : sent_.hub_host;
  if (shows.empty() && !directory_.empty() && !watch_.has_value()) {
    shows = HostOfRankZero(directory_);
    if (shows == folder_) return "";
    if (!shows.empty()) absl::StrAppend(&shows, ", where rank 0 is,");
  }
  return shows.empty() ? ""
                       : absl::StrCat("gpuprobe: recorded in ", own_, "; ", shows, " reports on all hosts\n");
}

std::string AllHosts::WhatArrived() const {
  if (!secret_.ok()) return absl::StrCat("; not sent to ", options_.meeting->Text(), ": ", secret_.message());
  if (!mirror_.has_value()) return "";
  if (sent_.all_sent) return absl::StrCat("; ", sent_.hub_host, " has it, too");
  return absl::StrCat("; not all at ", options_.meeting->Text(), sent_.why.empty() ? "" : ": ", sent_.why);
}

std::string AllHosts::WhyAlone() const {
  if (options_.meeting.has_value() && options_.meeting->alone)
    return sent_.all_sent ? absl::StrCat("gpuprobe: ", sent_.hub_host, " reports on this job, too\n")
                          : absl::StrCat("gpuprobe: this job is not all at ", options_.meeting->Text(),
                                         sent_.why.empty() ? "" : absl::StrCat(" (", sent_.why, ")"), "\n");
  std::string text = "gpuprobe: this host's part of the job";
  if (!sent_.why.empty())
    absl::StrAppend(&text, ", which is not all at ", options_.meeting->Text(), " (", sent_.why, ")");
  if (directory_.empty())
    return absl::StrCat(text, "; with the other hosts' directories beside it: gpuprobe report ", own_,
                        " DIR ...\n");
  return absl::StrCat(text, "; once all hosts are done: gpuprobe report ", directory_, "\n");
}

}  // namespace gpuprobe::recording
