// What the calls of a kernel move: the bytes that this rank gives when the kernel starts, and those that it
// takes when the kernel ends.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/sim/nccl/group.h"
#include "tests/sim/nccl/mail.h"

namespace gpusim::nccl {

// Larger calls move nothing: their values decide no program's way, and copies of gradients would cost more
// than all else that the node does.
constexpr uint64_t kMostMovedBytes = 256 << 10;

// Posts what this rank gives to the calls, one piece for each; returns the letter's word.
uint64_t Give(const std::vector<Call>& calls, std::function<bool()> is_read);

using LetterOf = std::function<Letter(int rank)>;
// Puts into each call's receive buffer what is this rank's of the letters. The order of additions is that of
// the ranks, so that all have the same sum.
void Take(const std::vector<Call>& calls, const LetterOf& letter_of);

}  // namespace gpusim::nccl
