#include "tests/sim/cupti/tool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/sim/cupti/layout.h"

namespace gpusim::cupti {
namespace {

Tool* current = nullptr;

// Before the driver reads its knobs.
const bool kKernelDurationsSet = [] {
  return setenv("GPUSIM_KERNELS", "slow_kernel=800ms;fast_kernel=20us", 0) == 0;
}();

constexpr char kModule[] =
    ".version 8.0\n.target sm_80\n.visible .entry fast_kernel() { ret; }\n"
    ".visible .entry slow_kernel() { ret; }\n";

}  // namespace

Tool::Tool() {
  current = this;
  subscribed = cuptiSubscribe(&subscriber, OnCallback, this);
  EXPECT_EQ(cuptiActivityRegisterCallbacks(OnRequest, OnComplete), CUPTI_SUCCESS);
}

Tool::~Tool() {
  for (const CUpti_ActivityKind kind : kinds_) {
    EXPECT_EQ(cuptiActivityDisable(kind), CUPTI_SUCCESS);
  }
  if (subscribed == CUPTI_SUCCESS) {
    EXPECT_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
  }
  uint32_t version = 0;
  cuptiGetVersion(&version);
  cuptiActivityFlushAll(version == 130000 ? 0 : CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
}

void Tool::Enable(CUpti_ActivityKind kind) {
  kinds_.push_back(kind);
  EXPECT_EQ(cuptiActivityEnable(kind), CUPTI_SUCCESS);
}

void Tool::Listen(CUpti_CallbackDomain domain, uint32_t cbid) {
  EXPECT_EQ(cuptiEnableCallback(1, subscriber, domain, cbid), CUPTI_SUCCESS);
}

void Tool::Flush(bool forced) {
  EXPECT_EQ(cuptiActivityFlushAll(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0), CUPTI_SUCCESS);
}

void Tool::OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  auto* tool = static_cast<Tool*>(self);
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API || domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite == CUPTI_API_ENTER) {
      *call->correlationData = call->correlationId + 1000;
    }
    const std::scoped_lock lock(tool->mutex_);
    tool->calls.push_back({domain, cbid, call->callbackSite, call->functionName,
                           call->symbolName == nullptr ? "" : call->symbolName, call->correlationId,
                           call->contextUid, *call->correlationData});
  }
  if (tool->on_callback) {
    tool->on_callback(domain, cbid, data);
  }
}

void Tool::OnRequest(uint8_t** buffer, size_t* size, size_t* max_records) {
  const std::scoped_lock lock(current->mutex_);
  ++current->requests;
  *max_records = 0;
  *buffer = nullptr;
  *size = 0;
  if (!current->decline_buffers) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, current->buffer_size));
    *size = current->buffer_size;
  }
}

void Tool::OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  uint32_t version = 0;
  cuptiGetVersion(&version);
  if (current->on_complete) {
    current->on_complete();
  }
  const std::scoped_lock lock(current->mutex_);
  ++current->completions;
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(record);
    current->records_.emplace_back(bytes, bytes + RecordSize(static_cast<uint32_t>(record->kind), version));
  }
  std::free(buffer);
}

Application::Application() {
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleLoadData(&module_, kModule), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&fast, module_, "fast_kernel"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&slow, module_, "slow_kernel"), CUDA_SUCCESS);
}

Application::~Application() { EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS); }

void Application::Launch(CUfunction function) const {
  EXPECT_EQ(cuLaunchKernel(function, 4, 2, 1, 64, 1, 1, 128, stream, nullptr, nullptr), CUDA_SUCCESS);
}

void Application::Synchronize() const { EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS); }

int RunAlone(const std::string& name, const std::vector<std::pair<std::string, std::string>>& environment,
             unsigned alarm_s) {
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [variable, value] : environment) {
      setenv(variable.c_str(), value.c_str(), 1);
    }
    alarm(alarm_s);
    const std::string filter = "--gtest_filter=*DISABLED_" + name;
    execl("/proc/self/exe", "cupti_test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace gpusim::cupti
