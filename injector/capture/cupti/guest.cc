#include "injector/capture/cupti/guest.h"

#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/guest_records.h"

namespace gpuprobe::injector {
namespace guest {

constinit CuptiApi bound;
constinit const CuptiApi* api = nullptr;
constinit BrokerHost host;
constinit std::atomic<bool> received{false};

namespace {
constinit std::atomic<bool> here{false};
}  // namespace

void Came() noexcept { here.store(true, std::memory_order_relaxed); }
void MaybeGone() noexcept {
  // While another tool has CUPTI, no guest is known.
  if (RecordsAnything() || IsSubscribed() || !Receiving()) return;
  here.store(false, std::memory_order_relaxed);
  AskForNoBuffer();
  StopClock();
}

}  // namespace guest

bool GuestIsActive() noexcept { return guest::here.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector
