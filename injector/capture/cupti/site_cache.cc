#include "injector/capture/cupti/site_cache.h"

namespace gpuprobe::injector {

void SiteCache::Forget() noexcept {
  std::memset(tables()->numbers, 0, sizeof(tables()->numbers));
  count_ = 1;
}

CachedSite& SiteCache::FindOrAdd(const CUpti_ActivityKernel4& kernel) noexcept {
  Tables& known = *tables();
  uint32_t place = HashOf(kernel);
  for (; known.numbers[place] != 0; place = (place + 1) % kPlaces) {
    CachedSite& site = known.sites[known.numbers[place]];
    if (Matches(site, kernel)) return site;
  }
  if (count_ == kSites) {
    Forget();
    place = HashOf(kernel);
  }
  known.numbers[place] = static_cast<uint16_t>(count_);
  CachedSite& site = known.sites[count_++];
  site = {};
  site.name = kernel.name;
  std::memcpy(site.shape, ShapeOf(kernel), sizeof(site.shape));
  site.registers_per_thread = kernel.registersPerThread;
  return site;
}

}  // namespace gpuprobe::injector
