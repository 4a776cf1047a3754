// The packing of collector/page/packed_cells.h. NaN: no value.
export function unpack(base64: string): Float32Array {
  const bytes = atob(base64);
  const cells = new Float32Array(bytes.length / 2);
  for (let i = 0; i < cells.length; ++i) {
    const cell = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
    const e = cell >> 11;
    const mantissa = cell & 2047;
    cells[i] = cell === 65535 ? NaN : e === 0 ? mantissa : (2048 + mantissa) * 2 ** (e - 1);
  }
  return cells;
}
