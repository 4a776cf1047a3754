// The small pictures beside findings, by the names that the findings' entries have (analysis/finding_rules.h).
import {Data, Finding, PictureName, kIdleParts, kIdleWords, kPartClass, kParts, kPartWords, MemoryLevels} from './data';
import {rect, s, text} from './dom';
import {bytes, duration, percent, rate} from './units';

const kWidth = 260;
type Picture = (data: Data, finding: Finding) => SVGSVGElement | null;

function svg(height: number, label: string, ...children: (SVGElement | null)[]): SVGSVGElement {
  return s('svg', {viewBox: `0 0 ${kWidth} ${height}`, width: kWidth, height, role: 'img', 'aria-label': label}, ...children);
}

interface Bar { label: string; value: number; words: string; css: string }

const kCaption = 16;  // height of the line that says what a picture shows

// Horizontal bars to one scale, each with its label before and its value behind, below what they are.
function bars(label: string, all: Bar[], labelWidth = 34): SVGSVGElement | null {
  if (all.length === 0) return null;
  const room = kWidth - labelWidth - Math.max(62, 8 + 6.5 * Math.max(...all.map(bar => bar.words.length)));
  const most = Math.max(...all.map(bar => bar.value), 1e-12);
  const children: SVGElement[] = [text(0, 11, label)];
  all.forEach((bar, i) => {
    const y = kCaption + 2 + i * 15;
    const width = bar.value / most * room;
    children.push(text(labelWidth - 6, y + 10, bar.label, 'end'), rect(labelWidth, y + 1, Math.max(width, 1), 11, bar.css),
                  text(labelWidth + width + 5, y + 10, bar.words));
  });
  return svg(kCaption + 4 + all.length * 15, `${label}: ${all.map(bar => `${bar.label} ${bar.words}`).join(', ')}`, ...children);
}

// The ranks with most of a value, and the named ones whatever they have, in the order of ranks.
function rankBars(data: Data, finding: Finding, label: string, of: (row: number) => number | null, css: string,
                  words: (value: number) => string = duration, named = new Set(finding.about.ranks.map(rank => data.rowOfRank(rank)))): SVGSVGElement | null {
  const rows = data.report.ranks.map((_, row) => row).filter(row => of(row) !== null);
  if (rows.length < 2) return null;
  const order = [...rows].sort((a, b) => Number(named.has(b)) - Number(named.has(a)) || of(b)! - of(a)!);
  const shown = order.slice(0, 8).sort((a, b) => a - b);
  return bars(label, shown.map(row => ({
    label: data.shortName(row), value: of(row)!, words: words(of(row)!), css: named.has(row) ? 'late' : css})));
}

// By how much the others' exposed communication exceeds each rank's own, as a mean over the steps from `since` on:
// what a late rank lengthens a step by. Waiting beside compute is no part of it.
function lateBy(data: Data, since: number): (number | null)[] {
  const grid = data.grid!;
  const sums = Array.from({length: grid.rows}, () => [0, 0]);
  for (let column = grid.columnOf(since); column < grid.columns; ++column) {
    if (grid.stepOf(column) < since) continue;
    const rows = sums.map((_, row) => row).filter(row => !Number.isNaN(grid.exposed[grid.at(row, column)]));
    if (rows.length < 2) continue;
    const sorted = rows.map(row => grid.exposed[grid.at(row, column)]).sort((a, b) => a - b);
    for (const row of rows) {
      const own = grid.exposed[grid.at(row, column)];
      const others = sorted.length - 1;
      const of = (place: number): number => sorted[place < sorted.indexOf(own) ? place : place + 1];
      const usual = (of(Math.floor((others - 1) / 2)) + of(Math.floor(others / 2))) / 2;
      sums[row][0] += Math.max(0, usual - own);
      ++sums[row][1];
    }
  }
  return sums.map(([sum, n]) => n > 0 ? sum / n : null);
}

// In a pipeline, stages wait in sends and receives, each for its neighbour: who computes longest shows.
const causedWait: Picture = (data, finding) => {
  const {ranks, communication} = data.report;
  if (communication.pipeline && ranks.every(rank => !rank.wait.caused_per_step_ns)) return computeByRank(data, finding);
  const since = finding.about.first_step;
  if (finding.about.ranks.length === 0 || data.grid === null)
    return rankBars(data, finding, 'Wait caused per step, by rank', row => ranks[row].wait.caused_per_step_ns, 'quiet');
  const late = lateBy(data, Math.max(since ?? 0, data.report.steps?.warmup_count ?? 0));
  return rankBars(data, finding, `Exposed wait caused per step${since === null ? '' : ` since step ${since}`}`, row => late[row], 'quiet');
};

const computeByRank: Picture = (data, finding) =>
    rankBars(data, finding, 'Compute per step, by rank', row => data.report.ranks[row].steps?.compute_ns.mean ?? null, 'compute');

// The GPU of a process that computes longest is the one that the finding is about.
const computeByGpu: Picture = (data, finding) => {
  const of = (row: number): number | null => data.report.ranks[row].steps?.compute_ns.mean ?? null;
  const busiest = data.report.ranks.reduce((most, _, row) => (of(row) ?? 0) > (of(most) ?? 0) ? row : most, 0);
  return rankBars(data, finding, 'Compute per step, by GPU', of, 'compute', duration, new Set([busiest]));
};

const waitsForCpu: Picture = (data, finding) =>
    rankBars(data, finding, 'Ready to run, without a CPU', row => data.report.ranks[row].host_load?.waits_for_cpu ?? null, 'late', percent);

// The mean step, with one part of it pointed out.
function stepBar(data: Data, part: string | null, detail: [string, number][] = []): SVGSVGElement | null {
  const steps = data.report.steps;
  if (!steps) return null;
  const scale = kWidth / steps.time_ns.mean;
  const children: SVGElement[] = [];
  let x = 0;
  for (const key of kParts) {
    const width = steps[key].mean * scale;
    children.push(rect(x, 16, width, 22, kPartClass[key] + (part !== null && key !== part ? ' faded' : ''),
                       `${kPartWords[key]} ${duration(steps[key].mean)}`));
    if (key === part || (part === null && width > 80))
      children.push(text(Math.min(Math.max(x + width / 2, 60), kWidth - 60), 11, `${kPartWords[key].replace('communication', 'comm')} ${percent(steps[key].mean / steps.time_ns.mean)}`, 'middle'));
    x += width;
  }
  const most = Math.max(...detail.map(([, ns]) => ns), 1);
  detail.forEach(([name, ns], i) => {
    const y = 48 + i * 15;
    children.push(text(86, y + 9, name, 'end'), rect(92, y, Math.max(ns / most * 104, 1), 11, i === 0 ? 'late' : 'quiet'),
                  text(98 + ns / most * 104, y + 9, duration(ns)));
  });
  const words = kParts.map(key => `${kPartWords[key]} ${duration(steps[key].mean)}`).join(', ');
  return svg(detail.length > 0 ? 52 + detail.length * 15 : 42, `A mean step of ${duration(steps.time_ns.mean)}: ${words}`, ...children);
}

function idleBecause(first: string): Picture {
  return data => {
    const idle = data.report.steps?.idle;
    const detail = idle === undefined ? [] : kIdleParts.filter(key => idle[key].mean > 0)
                       .sort((a, b) => Number(b === first) - Number(a === first) || idle[b].mean - idle[a].mean)
                       .map((key): [string, number] => [kIdleWords[key], idle[key].mean]);
    return stepBar(data, 'idle_ns', detail);
  };
}

const exposed: Picture = data => {
  const steps = data.report.steps;
  if (!steps) return null;
  return stepBar(data, 'exposed_comm_ns',
                 [['exposed', steps.exposed_comm_ns.mean], ['hidden', steps.overlapped_comm_ns.mean]]);
};

const buckets: Picture = data => {
  const sizes = data.report.communication.buckets?.sizes ?? [];
  return bars('Buckets by size, transfer time', sizes.slice(0, 6).map((size, i) => ({
    label: bytes(size.size_bytes), value: size.transfer_ns, words: `${duration(size.transfer_ns)} x${size.calls_per_step.toFixed(0)}`,
    css: i === 0 ? 'late' : 'comm'})), 70);
};

const network: Picture = data => {
  const c = data.report.communication;
  const slow = c.network?.slow;
  if (slow) {
    return bars(`${slow.op} of ${bytes(slow.size_bytes)}`,
                [{label: 'usual', value: slow.usual_ns, words: duration(slow.usual_ns), css: 'comm'},
                 {label: 'now', value: slow.slow_ns, words: duration(slow.slow_ns), css: 'late'}], 44);
  }
  const best = Math.max(0, ...data.report.collectives.map(call => call.transfer_busbw_gbytes_per_s ?? call.busbw_gbytes_per_s ?? 0));
  const limit = c.link_peak_gbytes_per_s ?? c.network?.reference_gbytes_per_s;
  if (!limit) return exposed(data, data.report.findings[0]);
  return bars('Bus bandwidth', [{label: 'best', value: best, words: rate(best), css: 'late'},
                                {label: 'link', value: limit, words: rate(limit), css: 'quiet'}], 40);
};

const bubble: Picture = data => {
  const p = data.report.communication.pipeline;
  if (!p) return null;
  return bars('Pipeline bubble', [{label: 'bubble', value: p.bubble, words: percent(p.bubble), css: 'late'},
                                  {label: 'least', value: p.least_bubble, words: percent(p.least_bubble), css: 'quiet'}], 48);
};

// The levels of a rank as one line, with the capacity of its device.
function sparkline(levels: MemoryLevels, capacity: number | null, label: string): SVGSVGElement {
  const height = 74;
  const values = levels.greatest_bytes;
  const top = Math.max(capacity ?? 0, ...values) * 1.05 || 1;
  const y = (value: number): number => height - value / top * (height - 4);
  const x = (i: number): number => i / values.length * kWidth;
  let path = `M0 ${height}`;
  values.forEach((value, i) => { path += `L${x(i).toFixed(1)} ${y(value).toFixed(1)}L${x(i + 1).toFixed(1)} ${y(value).toFixed(1)}`; });
  const peak = values.indexOf(Math.max(...values));
  const anchor = x(peak) < kWidth / 3 ? 'start' : x(peak) > kWidth * 2 / 3 ? 'end' : 'middle';
  const peakX = anchor === 'start' ? 0 : anchor === 'end' ? kWidth : x(peak);
  return svg(height + 14, label, s('path', {d: `${path}L${kWidth} ${height}Z`, class: 'memory area'}),
             capacity ? s('line', {x1: 0, x2: kWidth, y1: y(capacity), y2: y(capacity), class: 'limit'}) : null,
             s('circle', {cx: x(peak), cy: y(values[peak]), r: 3, class: 'late'}),
             text(peakX, height + 11, `peak ${bytes(values[peak])}${capacity ? ` of ${bytes(capacity)}` : ''}`, anchor));
}

const memory: Picture = (data, finding) => {
  const row = finding.about.ranks.length > 0 ? data.rowOfRank(finding.about.ranks[0]) : 0;
  const of = (kind: string): MemoryLevels | undefined => data.memory.find(levels => levels.row === row && levels.kind === kind);
  const levels = of('tensors') ?? of('device') ?? data.memory.find(other => other.row === row);
  if (!levels || levels.greatest_bytes.length < 2) return null;
  const capacity = data.report.ranks[row].device_memory?.[0]?.capacity_bytes ?? null;
  return sparkline(levels, levels.kind === 'host_pinned' ? null : capacity, `Memory of ${data.rankName(row)} over the run`);
};

// What is never released any more, from the first steps on: a leak is a staircase, whatever each step adds for a while.
const leak: Picture = (data, finding) => {
  const row = finding.about.ranks.length > 0 ? data.rowOfRank(finding.about.ranks[0]) : 0;
  const levels = ['tensors', 'device'].map(kind => data.memory.find(all => all.row === row && all.kind === kind)).find(found => found !== undefined);
  const rank = data.report.ranks[row];
  const trend = (levels?.kind === 'tensors' ? rank?.memory?.pytorch?.[0] : rank?.device_memory?.[0])?.trend;
  const growth = trend?.growth_bytes_per_step ?? 0;
  const steps = data.report.steps;
  if (!levels || !steps || growth <= 0) return memory(data, finding);
  const held = [...levels.least_bytes];
  for (let i = held.length - 2; i >= 0; --i) held[i] = Math.min(held[i], held[i + 1]);
  const begin = held[held.length - 1] - growth * (steps.count - steps.warmup_count);
  const from = Math.max(0, held.findIndex(value => value >= begin));
  const shown = held.slice(from);
  const [low, high] = [shown[0], shown[shown.length - 1]];
  if (shown.length < 8 || high <= low) return memory(data, finding);
  const height = 70;
  const y = (value: number): number => height - (value - low) / (high - low) * (height - 22);
  const x = (i: number): number => i / shown.length * kWidth;
  let path = `M0 ${height}`;
  shown.forEach((value, i) => { path += `L${x(i).toFixed(1)} ${y(value).toFixed(1)}L${x(i + 1).toFixed(1)} ${y(value).toFixed(1)}`; });
  const label = `Held for good by ${data.rankName(row)}`;
  return svg(height + 14, `${label}: ${bytes(low)} at first, ${bytes(high)} at the end`, text(0, 11, label),
             s('path', {d: `${path}L${kWidth} ${height}Z`, class: 'memory area'}),
             text(0, height + 11, bytes(low)), text(kWidth, height + 11, bytes(high), 'end'));
};

const reserved: Picture = (data, finding) => {
  const row = data.rowOfRank(finding.about.ranks[0] ?? 0);
  const p = row >= 0 ? data.report.ranks[row].memory?.pytorch?.[0] : null;
  if (!p) return memory(data, finding);
  return bars('Peaks', [{label: 'reserved', value: p.peak_reserved_bytes, words: bytes(p.peak_reserved_bytes), css: 'late'},
                        {label: 'tensors', value: p.peak_allocated_bytes, words: bytes(p.peak_allocated_bytes), css: 'copy'}], 56);
};

// Step time over the run, with single steps or the warm-up pointed out.
const stepTimes = (warmupOf: (data: Data) => number): Picture => (data, finding) => {
  const grid = data.grid;
  if (!grid) return null;
  const height = 70;
  const values = columnMeans(data);
  const marked = new Set(finding.about.steps.map(step => grid.columnOf(step)));
  const warmup = warmupOf(data);
  const top = Math.max(...values.filter(value => !Number.isNaN(value)), 1);
  const width = kWidth / grid.columns;
  const path: Record<string, string> = {quiet: '', late: ''};
  values.forEach((value, column) => {
    if (Number.isNaN(value)) return;
    const tall = value / top * height;
    const late = marked.has(column) || column * grid.stepsPerColumn < warmup;
    const wide = late ? Math.max(width, 2) : width;
    path[late ? 'late' : 'quiet'] += `M${(column * width).toFixed(2)} ${height}v${(-tall).toFixed(1)}h${(wide * 0.9).toFixed(2)}v${tall.toFixed(1)}z`;
  });
  // Each bar is a mean then, and a single long step is longer.
  const each = grid.stepsPerColumn === 1 ? '' : `, means of ${grid.stepsPerColumn} steps`;
  const label = `Step time over the run${each}; longest ${duration(top)}`;
  return svg(height + 14, label, s('path', {d: path.quiet, class: 'quiet'}), s('path', {d: path.late, class: 'late'}),
             text(0, height + 11, grid.name(0)), text(kWidth, height + 11, `longest ${duration(top)}${each}`, 'end'));
};

export function columnMeans(data: Data): number[] {
  const grid = data.grid!;
  const out: number[] = [];
  for (let column = 0; column < grid.columns; ++column) {
    let sum = 0;
    let n = 0;
    for (let row = 0; row < grid.rows; ++row) {
      const value = grid.total[grid.at(row, column)];
      if (!Number.isNaN(value)) { sum += value; ++n; }
    }
    out.push(n > 0 ? sum / n : NaN);
  }
  return out;
}

// One square for each rank: those at fault stand out.
const rankSquares: Picture = (data, finding) => {
  const total = data.report.ranks.length;
  const size = total <= 32 ? 26 : total <= 128 ? 15 : 7;
  const each = Math.floor(kWidth / size);
  const named = new Set(finding.about.ranks.map(rank => data.rowOfRank(rank)));
  const names = finding.about.ranks.join(', ');
  const children: SVGElement[] = [text(0, 11, names ? 'Ranks, those at fault marked' : 'Ranks')];
  for (let row = 0; row < total; ++row) {
    const x = row % each * size;
    const y = kCaption + Math.floor(row / each) * size;
    children.push(rect(x + 1, y + 1, size - 2, size - 2, named.has(row) ? 'late' : 'quiet', data.rankName(row)));
    if (size === 26) children.push(text(x + size / 2, y + 17, data.shortName(row), 'middle', named.has(row) ? 'on-late' : ''));
  }
  return svg(kCaption + Math.ceil(total / each) * size, names ? `Ranks at fault: ${names}, of ${total}` : `${total} ranks`, ...children);
};

// One square for each GPU that the program sees: those that it does not use stand out.
const gpuSquares: Picture = data => {
  const {devices, idle_devices} = data.report.conditions;
  const place = (d: {host: string; ordinal: number}): string => `${d.host} ${d.ordinal}`;
  const idle = new Set(idle_devices.map(place));
  const size = 26;
  const each = Math.floor(kWidth / size);
  const children: SVGElement[] = [text(0, 11, 'GPUs, unused ones marked')];
  devices.forEach((device, i) => {
    const x = i % each * size;
    const y = kCaption + Math.floor(i / each) * size;
    const late = idle.has(place(device));
    children.push(rect(x + 1, y + 1, size - 2, size - 2, late ? 'late' : 'quiet', `GPU ${device.ordinal} on ${device.host}`),
                  text(x + size / 2, y + 17, `${device.ordinal}`, 'middle', late ? 'on-late' : ''));
  });
  const names = idle_devices.map(d => d.ordinal).join(', ');
  return svg(kCaption + Math.ceil(devices.length / each) * size, `Unused of ${devices.length} GPUs: ${names}`, ...children);
};

const idleGpus: Picture = data => bars('Memory on GPUs where nothing computes', data.report.conditions.idle_devices.slice(0, 8).map(d => ({
  label: `GPU ${d.ordinal}`, value: d.peak_bytes, words: bytes(d.peak_bytes), css: 'late'})), 44);

// The run until its GPUs got no more work, and since then.
const standstill: Picture = data => {
  const hang = data.report.hangs.find(h => h.kind === 'no_work');
  const all: number = data.report.conditions.duration_ns;
  if (!hang || all <= 0) return null;
  const still = Math.min(hang.waiting_ns, all);
  const x = (1 - still / all) * kWidth;
  const worked = `${duration(all - still)} with GPU work`;
  const none = `none for ${duration(still)}`;
  return svg(58, `${worked}, then ${none}`, text(0, 11, worked), rect(0, kCaption, x, 22, 'quiet', worked), rect(x, kCaption, kWidth - x, 22, 'late', none),
             text(kWidth, 54, none, 'end'));
};

// From when to when each rank ran.
const lifelines: Picture = (data, finding) => {
  const c = data.report.conditions;
  const named = new Set(finding.about.ranks.map(rank => data.rowOfRank(rank)));
  const rows = data.report.ranks.map((_, row) => row).filter(row => data.report.ranks[row].duration_ns !== undefined)
                   .sort((a, b) => Number(named.has(b)) - Number(named.has(a)) || a - b).slice(0, 8).sort((a, b) => a - b);
  if (rows.length === 0) return null;
  const scale = (kWidth - 30) / Math.max(c.duration_ns, 1);
  const children: SVGElement[] = [text(0, 11, 'From when to when each rank was recorded')];
  rows.forEach((row, i) => {
    const rank = data.report.ranks[row];
    const x = 28 + (rank.start_ns! - c.start_ns) * scale;
    const width = rank.duration_ns! * scale;
    const y = kCaption + i * 15;
    children.push(text(22, y + 10, data.shortName(row), 'end'), rect(x, y + 2, width, 9, named.has(row) || rank.cut_off ? 'late' : 'quiet',
                  `${data.rankName(row)} ran for ${duration(rank.duration_ns!)}`));
  });
  return svg(kCaption + rows.length * 15 + 4, 'From when to when each rank was recorded', ...children);
};

const coverage: Picture = data => {
  const t = data.report.trust;
  const share: number = t.coverage ?? 1;
  return svg(40, `${percent(share)} of the records came`, rect(0, 14, kWidth, 18, 'late'), rect(0, 14, kWidth * share, 18, 'quiet'),
             text(0, 10, `${percent(share)} of the records came`));
};

const overhead: Picture = data => {
  const cost = data.report.trust.cost;
  const share = (cost.own_fraction ?? 0) + (cost.expected_cupti_least ?? 0);
  return bars('Profiling', [{label: 'program', value: 1, words: '', css: 'quiet'},
                            {label: 'profiling', value: share, words: `${percent(share)}, estimated`, css: 'late'}], 58);
};

const kDrawn = {
  memory, leak, reserved, idle_gpus: idleGpus, gpus: gpuSquares, lifelines, ranks: rankSquares, standstill, caused_wait: causedWait,
  compute_by_rank: computeByRank, compute_by_gpu: computeByGpu, waits_for_cpu: waitsForCpu, network, buckets, exposed, bubble,
  idle_input: idleBecause('input_ns'), idle_launch: idleBecause('host_bound_ns'), idle_sync: idleBecause('sync_ns'),
  idle_memory: idleBecause('memory_ns'), idle_pause: idleBecause('pause_ns'),
  copies: (data: Data) => stepBar(data, 'copy_ns'), compute: (data: Data) => stepBar(data, 'compute_ns'), whole_step: (data: Data) => stepBar(data, null),
  step_times: stepTimes(() => 0), warmup: stepTimes(data => data.report.steps?.warmup_count ?? 0), coverage, overhead,
};
const kPictures: Record<PictureName, Picture> = kDrawn;

export function pictureOf(data: Data, index: number): SVGSVGElement | null {
  const name = data.pictures[index];
  return name === '' ? null : kPictures[name](data, data.report.findings[index]);
}
