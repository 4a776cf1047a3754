// What a live page shows: the run as the recorder of one host knows it, or as the logs of all hosts have it.
// Used from the recording thread, which it never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/job_numbers.h"
#include "collector/analysis/live_status.h"
#include "collector/http/document_builder.h"

namespace gpuprobe::recording {

class PageSource {
 public:
  PageSource() = default;
  virtual ~PageSource() = default;
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;

  // As of the last second, both.
  virtual analysis::LiveStatus StatusNow() const = 0;
  virtual analysis::JobNumbers NumbersNow() const = 0;
  // Grows with everything that the documents could show.
  virtual uint64_t changes() const = 0;
  // Batches that are counted, and could not be written.
  virtual uint64_t unrecorded_frames() const { return 0; }
  // What the documents of the run so far are made from; nullopt: there is nothing yet, or it comes to a later
  // call.
  virtual std::optional<http::DocumentBuilder::Order> OrderDocuments(
      const std::vector<std::string>& command_line) = 0;
};

}  // namespace gpuprobe::recording
