// Keeps the page of a run that is being recorded up to date: hands snapshots of it to the server.
//
// What records does not know the viewers, and the server knows only snapshots. Used from the recording
// thread, which it never blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collector/http/board.h"
#include "collector/http/document_builder.h"
#include "collector/http/server.h"
#include "collector/ingest/server.h"
#include "collector/recording/page_source.h"

namespace gpuprobe::recording {

// The board that the server reads, and the builder of the documents on it.
struct Live {
  http::Board board;
  http::DocumentBuilder builder{board};
};

class LivePage {
 public:
  // `server` listens, or is null: then nothing here does anything. `command`: of the run, for the page.
  LivePage(std::unique_ptr<http::Server> server, std::vector<std::string> command)
      : server_(std::move(server)), command_(std::move(command)) {}

  // Starts threads, so that nothing may be forked afterwards.
  void Start();
  // Empty if nothing is served.
  std::string Url() const { return server_ == nullptr ? "" : server_->Url(); }
  // Call a few times a second, and when records have come.
  void Tick(PageSource& source, const ingest::Server& ingest);
  // How long to wait for records before the next Tick.
  std::chrono::milliseconds Patience(const PageSource& source) const;
  // The run is over, and `job` is settled: gives viewers the last documents, and time to fetch them.
  void Conclude(const model::JobModel& job, const analysis::Report& report, const store::RunFiles& files);

 private:
  void PutMoment(const PageSource& source, const ingest::Server& ingest);
  bool HasNews(const PageSource& source) const { return live_.has_value() && ordered_ != source.changes(); }
  // Whether no records have come for a moment, or some have waited for long.
  bool HasSettled(const PageSource& source);

  std::unique_ptr<http::Server> server_;  // ends before what it reads
  std::vector<std::string> command_;
  std::optional<Live> live_;
  uint64_t moments_ = 0;
  uint64_t next_moment_ns_ = 0;
  uint64_t ordered_ = 0;             // changes of the source when documents were last ordered
  uint64_t seen_ = 0;                // changes at the last Tick
  uint64_t changed_ns_ = 0;          // when they were new
  std::optional<uint64_t> news_ns_;  // since when there are changes that no documents were ordered for
};

// "   live: http://127.0.0.1:9460", for the end of a line; empty if nothing is served.
std::string LiveWords(const LivePage& page);

// The page of a run that is over, until `stop` is readable.
void ServeFinished(http::Server& server, const model::JobModel& job, const analysis::Report& report,
                   const store::RunFiles& files, int stop);

}  // namespace gpuprobe::recording
