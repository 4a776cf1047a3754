// Packs a grid of lengths into text: 16 bits a cell, in base64.
//
// A cell is a small floating point number of nanoseconds without sign: 5 bits of exponent e, 11 bits of
// mantissa m. It means m if e is 0, else (2048 + m) * 2^(e - 1): exact below 4,096 ns, off by at most 0.025 %
// above. 65535: no value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gpuprobe::page {

inline constexpr uint16_t kNoCell = 65535;

uint16_t PackCell(double ns);
double UnpackCell(uint16_t cell);
// Base64 of the cells, low byte first.
std::string PackCells(std::span<const uint16_t> cells);

}  // namespace gpuprobe::page
