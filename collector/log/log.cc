#include "collector/log/log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "collector/text/characters.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace gpuprobe::log {
namespace {

class FunctionSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(std::string_view)> take) : take_(std::move(take)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    take_({message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

  std::function<void(std::string_view)> take_;
};

std::shared_ptr<spdlog::logger>& Logger() {
  static std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("gpuprobe: %v");
    return made;
  }();
  return logger;
}

}  // namespace

void SayForPeople(std::string_view text) {
  std::fputs(text::PrintableStyled(text).c_str(), stderr);
  std::fflush(stderr);
}

void Warn(std::string_view line) {
  const std::string printable = text::PrintableLines(line);
  Logger()->log(spdlog::level::warn, spdlog::string_view_t(printable.data(), printable.size()));
}

void Redirect(std::function<void(std::string_view)> take) {
  Logger() = std::make_shared<spdlog::logger>("", std::make_shared<FunctionSink>(std::move(take)));
}

}  // namespace gpuprobe::log
