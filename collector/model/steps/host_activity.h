// What a process's host was seen doing, as one step's measurement needs it.
#pragma once

#include <cstdint>
#include <span>

#include "collector/model/state/members.h"
#include "collector/model/steps/host_places.h"

namespace gpuprobe::model {

struct HostInterval {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t calls = 1;
  uint32_t name = 0;  // StringDef of the call; 0: not known

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns, end_ns, calls, name);
  }
};

// The thread whose wait explains the process's, at one moment (device_steps.h).
struct HostSample {
  uint64_t time_ns = 0;
  uint64_t since_ns = 0;      // it stands for the time from there on
  uint64_t run_delay_ns = 0;  // in which the thread could run, and had no processor
  bool in_gap = false;        // the process launched nothing meanwhile
  HostPlace place;

  // The probe looks at moments that depend on nothing the program does, and while the process launches it
  // takes a sample at one look in four: how many looks this one stands for.
  uint64_t looks() const { return in_gap ? 1 : 4; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, time_ns, since_ns, run_delay_ns, in_gap, place);
  }
};

// What the host was seen doing, each by start; samples by time.
struct HostActivity {
  std::span<const HostInterval> blocked = {};  // in a synchronising call
  std::span<const HostInterval> memory = {};   // in a call that allocates or releases memory
  std::span<const HostInterval> input = {};    // in a range that is named after loading
  std::span<const HostInterval> calls = {};    // in one of the driver's rare and slow functions
  std::span<const HostSample> samples = {};
  bool loads_nothing = false;  // samples of earlier silences say so
};

}  // namespace gpuprobe::model
