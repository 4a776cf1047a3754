// A terminal as a screen that is redrawn and keys that are pressed: for `gpuprobe top`.
//
// While it lives, the terminal shows an empty screen of its own, without a cursor, and passes keys on at
// once. Whatever ends the program (q, Ctrl-C, a signal, the terminal itself), the terminal is as it was
// before; Ctrl-Z and fg work.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "collector/recording/signals.h"

namespace gpuprobe::cli {

enum class Key { kNone, kUp, kDown, kPageUp, kPageDown, kEnter, kBack, kSort, kQuit };

class Keyboard {
 public:
  // Null if standard input or output is not a terminal, or is a dumb one.
  static std::unique_ptr<Keyboard> Open();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // Waits until a key is pressed, the size changes (kNone) or the time is over (kNone). kQuit also for a
  // signal that ends programs.
  Key Await(std::chrono::milliseconds patience);
  // Replaces what the terminal shows. Lines beyond the bottom are left out.
  void Show(std::string_view text) const;
  // Lines that fit.
  static size_t Rows();
  // The signal that caused kQuit; 0: a key did.
  int end_signal() const { return end_signal_; }

 private:
  Keyboard(recording::SignalFd signals, const termios& before)
      : signals_(std::move(signals)), before_(before) {}
  void Enter() const;
  void Leave() const;
  void Suspend() const;
  Key Read();

  recording::SignalFd signals_;
  termios before_;
  int end_signal_ = 0;
};

}  // namespace gpuprobe::cli
