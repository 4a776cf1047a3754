// The toolkit's real libcupti: what does not need a driver in it says what is right.
#pragma once

#include <cupti.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace gpusim::cupti {

class Oracle {
 public:
  static Oracle& Get() {
    static Oracle oracle;
    return oracle;
  }
  bool loaded() const {
    return next_record != nullptr && callback_name != nullptr && result_string != nullptr;
  }

  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiGetErrorMessage) error_message = nullptr;
  decltype(&cuptiGetVersion) version = nullptr;

 private:
  Oracle() {
    void* library = dlopen(GPUSIM_REAL_CUPTI, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return;
    }
    next_record = reinterpret_cast<decltype(next_record)>(dlsym(library, "cuptiActivityGetNextRecord"));
    callback_name = reinterpret_cast<decltype(callback_name)>(dlsym(library, "cuptiGetCallbackName"));
    result_string = reinterpret_cast<decltype(result_string)>(dlsym(library, "cuptiGetResultString"));
    error_message = reinterpret_cast<decltype(error_message)>(dlsym(library, "cuptiGetErrorMessage"));
    version = reinterpret_cast<decltype(version)>(dlsym(library, "cuptiGetVersion"));
  }
};

}  // namespace gpusim::cupti

#define SKIP_WITHOUT_ORACLE()                                                                         \
  if (!::gpusim::cupti::Oracle::Get().loaded()) {                                                     \
    GTEST_SKIP() << "the toolkit's libcupti.so.13 is not at \"" GPUSIM_REAL_CUPTI "\": not compared"; \
  }
