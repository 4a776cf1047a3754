// The captures of one job, one at a time: of this host's processes and, where the job's hub is, of those of
// all hosts.
//
// Used from one thread, that of the server which asks its answerers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/hub/capture_board.h"
#include "collector/ingest/session.h"
#include "collector/recording/capture_director.h"
#include "collector/recording/detail_watch.h"
#include "gpuprobe/v1/hub.pb.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::recording {

class JobCaptures {
 public:
  using Own = std::vector<v1::CapturedProcess>;
  // To a process of this host.
  using SendHere = std::function<void(uint32_t number, const v1::Capture& order)>;

  explicit JobCaptures(SendHere send_here) : send_here_(std::move(send_here)) {}

  // The hub of the job is here. `directory`: of all hosts, where the command looks for what was captured once
  // others than this one have processes. `board` outlives every call.
  void SetBoard(hub::CaptureBoard* board, const std::string& directory);
  // Captures of this job are made elsewhere: where, in a line; empty: they are not.
  void SetElsewhere(const std::string& where) { elsewhere_ = where; }
  bool are_elsewhere() const { return !elsewhere_.empty(); }

  // `own`: processes of this host, as of now. AlreadyExists: everything is recorded anyway; else why not.
  absl::StatusOr<std::unique_ptr<ingest::Answerer>> Open(const v1::CaptureRequest& request, const Own& own);
  // The same for what the collector itself has decided.
  void Raise(DetailWatch::Decision decision, const Own& own);
  // Once, when that is over, or could not begin, or the job is over: what came of it. Other hosts have it
  // then.
  std::optional<v1::DetailRaise> TakeRaise(bool job_is_over = false);
  bool under_way() const { return director_ != nullptr && !director_->over(); }
  // Every process of the job is connected, as far as its host was heard lately.
  bool AllHere(const Own& own) const;
  // A few times a second while one is under way.
  void Tick(const Own& own);
  // No process is there any more.
  void End() {
    director_.reset();
    raised_.reset();
  }

 private:
  class Answerer;
  absl::StatusOr<std::shared_ptr<CaptureDirector>> Begin(const v1::CaptureRequest& request,
                                                         const CaptureDirector::Processes& all);
  CaptureDirector::Processes All(const Own& own) const;
  void Send(const CaptureDirector::Process& process, const v1::Capture& order) const;

  SendHere send_here_;
  hub::CaptureBoard* board_ = nullptr;  // null: this is not the job's hub
  std::string directory_;
  std::string elsewhere_;
  std::shared_ptr<CaptureDirector> director_;  // of the last one
  std::shared_ptr<CaptureDirector> raised_;    // of Raise, until TakeRaise
  std::optional<v1::DetailRaise> raise_;       // likewise
};

}  // namespace gpuprobe::recording
