// Calls that may hang: in a driver, on a network file system, in a name service.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace gpuprobe::observe {

// What `call` returns, from a thread of its own; nullopt if that takes longer than `patience`: the thread is
// then left to itself, so that `call` must own all that it uses. Where no thread can be started, it is called
// from this one, however long it takes.
template <typename Call>
auto Within(std::chrono::milliseconds patience, Call call) -> std::optional<std::invoke_result_t<Call>> {
  using Result = std::invoke_result_t<Call>;
  const auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  try {
    std::thread([promise, call] { promise->set_value(call()); }).detach();
  } catch (const std::system_error&) {
    return call();
  }
  if (result.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace gpuprobe::observe
