// cupti_callbacks.h, cupti_result.h, cupti_version.h: subscription, callback points, names, errors.

#include <utility>

#include "tests/sim/cupti/api.h"
#include "tests/sim/cupti/names.h"

namespace gpusim::cupti {
namespace {

thread_local CUptiResult last_error = CUPTI_SUCCESS;

constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE,   CUPTI_CB_DOMAIN_SYNCHRONIZE,
                                             CUPTI_CB_DOMAIN_NVTX,       CUPTI_CB_DOMAIN_STATE};

// `cbid` -1: all of the domain. False if there is no such subscriber, domain or id.
bool SetCallback(CUpti_SubscriberHandle subscriber, bool enable, int domain, int64_t cbid) {
  if (OtherSubscriber* other = TheSession().GetCompany().Find(subscriber); other != nullptr)
    return other->SetCallback(enable, domain, cbid);
  return TheSession().IsCurrent(subscriber) && TheSession().SetCallback(enable, domain, cbid);
}

}  // namespace

CUptiResult Return(CUptiResult result) {
  if (result != CUPTI_SUCCESS) {
    last_error = result;
  }
  return result;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                                               CUpti_CallbackFunc callback, void* userdata) {
  return cuptiSubscribe_v2(subscriber, callback, userdata, nullptr);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                                  CUpti_CallbackFunc callback, void* userdata,
                                                  CUpti_SubscriberParams* params) {
  const ApiLock lock;
  if (TheSession().GetKnobs().unusable) {
    return Return(CUPTI_ERROR_UNKNOWN);
  }
  return Return(
      TheSession().Subscribe(subscriber, callback, userdata, reinterpret_cast<SubscriberParams*>(params)));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  const ApiLock lock;
  return Return(TheSession().Unsubscribe(subscriber));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle subscriber,
                                                      CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  const ApiLock lock;
  const OtherSubscriber* other = TheSession().GetCompany().Find(subscriber);
  if (enable == nullptr || (other == nullptr && !TheSession().IsCurrent(subscriber)) ||
      cbid >= CallbackCount(domain)) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  const bool enabled =
      other != nullptr ? other->Listens(domain, cbid) : TheSession().CallbackEnabled(domain, cbid);
  *enable = enabled ? 1 : 0;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                                    CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  const ApiLock lock;
  if (!SetCallback(subscriber, enable != 0, domain, cbid)) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                                  CUpti_CallbackDomain domain) {
  const ApiLock lock;
  if (!SetCallback(subscriber, enable != 0, domain, -1)) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  const ApiLock lock;
  for (const CUpti_CallbackDomain domain : kDomains) {
    if (!SetCallback(subscriber, enable != 0, domain, -1)) return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiSupportedDomains(size_t* domain_count, CUpti_DomainTable* domain_table) {
  if (domain_count == nullptr || domain_table == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  static std::array<CUpti_CallbackDomain, std::size(kDomains)> table = std::to_array(kDomains);
  *domain_count = table.size();
  *domain_table = table.data();
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                                     const char** name) {
  const char* found = CallbackName(domain, cbid);
  if (name == nullptr || found == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *name = found;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *version = ReportedVersion(TheSession().GetKnobs().api_version);
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetLastError() { return std::exchange(last_error, CUPTI_SUCCESS); }

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** str) {
  if (str == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  const char* name = ResultName(result);
  *str = name == nullptr ? "<unknown>" : name;
  return name == nullptr ? Return(CUPTI_ERROR_INVALID_PARAMETER) : CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetErrorMessage(CUptiResult result, const char** str) {
  if (str == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  const char* message = ResultMessage(result);
  *str = message == nullptr ? "<unknown>" : message;
  return CUPTI_SUCCESS;
}

}  // namespace gpusim::cupti
