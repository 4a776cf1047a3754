#include "collector/store/read_progress.h"

#include <utility>

namespace gpuprobe::store {
namespace {

// Never destroyed: a log may be read until the very end.
std::function<void(uint64_t)>& Observer() {
  static auto* observer = new std::function<void(uint64_t)>();
  return *observer;
}

}  // namespace

void ObserveReading(std::function<void(uint64_t bytes)> observer) { Observer() = std::move(observer); }

void NoteRead(uint64_t bytes) {
  if (Observer()) Observer()(bytes);
}

}  // namespace gpuprobe::store
