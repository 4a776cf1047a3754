#include "injector/capture/cupti/guest.h"

#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_records.h"

namespace gpuprobe::injector {
namespace guest {

constinit BrokerHost host;
constinit std::atomic<bool> received{false};

namespace {
constinit std::atomic<bool> here{false};
}  // namespace

void Came() noexcept { here.store(true, std::memory_order_relaxed); }
void MaybeGone() noexcept {
  if (!RecordsAnything() && !IsSubscribed()) here.store(false, std::memory_order_relaxed);
}

void ForgetForTest() noexcept {
  received.store(false);
  host = {};
  here.store(false);
}

}  // namespace guest

bool GuestIsActive() noexcept { return guest::here.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector
