// Calls all capture parts in their order: at the start, at every flush, at every requested look, and at the
// end.
#pragma once

namespace gpuprobe::injector {

void StartParts() noexcept;
void TickParts() noexcept;
void FinishParts() noexcept;
void LookParts() noexcept;

}  // namespace gpuprobe::injector
