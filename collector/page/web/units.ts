// Numbers with units, in the words of the text report (collector/analysis/units.cc).

function three(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function count(value: number): string { return Math.round(value).toLocaleString('en-US'); }

export function duration(ns: number): string {
  const next = 0.9995;
  if (ns < next * 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < next * 1e6) return `${three(ns / 1e3)} us`;
  if (ns < next * 1e9) return `${three(ns / 1e6)} ms`;
  return `${three(ns / 1e9)} s`;
}

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (value >= (unit === 0 ? 1024 : 999.5) && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return unit === 0 ? `${value} B` : `${three(value)} ${units[unit]}`;
}

export function rate(gbytesPerS: number): string {
  return gbytesPerS > 0 && gbytesPerS < 0.1 ? `${three(gbytesPerS * 1e3)} MB/s` : `${three(gbytesPerS)} GB/s`;
}

export function percent(share: number): string { return `${(share * 100).toFixed(1)} %`; }

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// The first eight digits of a communicator's hash after leading zeros, as the text report names it.
export function shortComm(comm: string): string {
  const digits = comm.replace(/^0+(?=.)/, '');
  return digits.slice(0, 8);
}

export function clock(ns: number): string {
  return new Date(ns / 1e6).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
}

// A round number of at least `value` for the top of an axis.
export function ceilingNs(value: number): number { return value > 0 ? value * 1.04 : 1; }

// Where the times of kernels and copies are from (trust.timing_source).
export const kTimingWords: Record<string, string> = {
  cupti_activity: 'CUPTI activity',
  mixed: 'CUPTI activity, on some ranks only',
  none: 'none',
};

// A file of Python as the text report writes it (collector/report/python_stack.cc).
export function shortFile(file: string): string {
  return file.replace(/^.*\/(?:site|dist)-packages\//, '').replace(/^.*\/lib\/(?=python3\.)/, '') || '?';
}
