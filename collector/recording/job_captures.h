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

  // `own`: processes of this host, as of now. AlreadyExists: everything is recorded anyway; else why not.
  absl::StatusOr<std::unique_ptr<ingest::Answerer>> Open(const v1::CaptureRequest& request, const Own& own);
  // The same for this host's collector, of whose own accord it is.
  absl::Status OpenOwn(const v1::CaptureRequest& request, const Own& own);
  // Its result was not taken.
  bool has_own() const { return own_ != nullptr; }
  // How that ended, once.
  std::optional<v1::CaptureProgress> TakeOwnResult();
  bool under_way() const { return director_ != nullptr && !director_->over(); }
  // A few times a second while one is under way.
  void Tick(const Own& own);
  // No process is there any more.
  void End() {
    director_.reset();
    own_.reset();
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
  std::shared_ptr<CaptureDirector> own_;       // of a capture of OpenOwn, until its result was taken
};

}  // namespace gpuprobe::recording
