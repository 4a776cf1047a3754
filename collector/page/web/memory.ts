// Memory over the run on one rank: what driver calls obtained, by kind, what PyTorch's tensors used of it,
// the high-water mark and the device's capacity.
import {scaleLinear} from 'd3-scale';
import {area, curveStepAfter} from 'd3-shape';
import {bottomAxis, leftAxis} from './chart';
import {Data, MemoryLifetimes, MemoryBySteps, MemoryLevels} from './data';
import {h, rect, responsive, s, section, select, text} from './dom';
import {stepsWords} from './header';
import {saveButton} from './picture_file';
import {Store} from './selection';
import {hideTooltip, showTooltip} from './tooltip';
import {bytes, duration} from './units';

const kHeight = 200;
const kLeft = 66;
const kDeviceKinds = ['device', 'pool', 'vmm', 'array', 'graph', 'managed'];

// Level of a kind at a time, before its first change 0.
function levelAt(levels: MemoryLevels, ns: number): number {
  const i = Math.floor((ns - levels.start_ns) / levels.width_ns);
  return i < 0 ? 0 : levels.greatest_bytes[Math.min(i, levels.greatest_bytes.length - 1)];
}

// When the selected steps began and ended on this rank, from the start of the run; null: none is selected, or it has none.
function windowOf(data: Data, store: Store, row: number, end: number): [number, number] | null {
  const {steps} = store.value;
  const starts = data.stepStarts.get(row);
  if (steps === null || starts === undefined) return null;
  const [first, last] = data.grid!.columnsOf(steps);
  const from = starts.slice(first, last + 1).find(at => !Number.isNaN(at));
  const to = starts.slice(last + 1).find(at => !Number.isNaN(at)) ?? end;
  return from === undefined ? null : [from, to];
}

function endOf(data: Data, all: MemoryLevels[]): number {
  return Math.max(data.report.conditions.duration_ns, ...all.map(levels => levels.start_ns + levels.width_ns * levels.greatest_bytes.length));
}

// Of each kind within the selected steps.
function inWindow(data: Data, store: Store, row: number): string {
  const all = data.memory.filter(levels => levels.row === row);
  const window = windowOf(data, store, row, endOf(data, all));
  if (window === null) return store.value.steps === null ? '' : 'This rank has none of the selected steps.';
  const most = (levels: MemoryLevels): number => {
    const of = (ns: number): number => Math.max(0, Math.min(levels.greatest_bytes.length - 1, Math.floor((ns - levels.start_ns) / levels.width_ns)));
    return window[1] <= levels.start_ns ? 0 : Math.max(...levels.greatest_bytes.slice(of(window[0]), of(window[1]) + 1));
  };
  return `In ${stepsWords(data, store.value.steps!)}, highest level: ${all.map(levels => `${levels.kind} ${bytes(most(levels))}`).join(', ')}.`;
}

function draw(data: Data, store: Store, row: number, width: number): SVGSVGElement {
  const all = data.memory.filter(levels => levels.row === row);
  const stacked = kDeviceKinds.map(kind => all.find(levels => levels.kind === kind)).filter((levels): levels is MemoryLevels => levels !== undefined);
  const lines = all.filter(levels => !kDeviceKinds.includes(levels.kind));
  const end = endOf(data, all);
  const points = Array.from({length: Math.min(600, Math.max(2, width - kLeft))}, (_, i, ) => i);
  const times = points.map(i => i / (points.length - 1) * end);
  const device = data.report.ranks[row].device_memory?.[0];
  const capacity = device?.capacity_bytes ?? null;
  const sums = times.map(() => 0);
  const peak = Math.max(...times.map(ns => stacked.reduce((sum, levels) => sum + levelAt(levels, ns), 0)), device?.high_water_bytes ?? 0,
                        ...lines.flatMap(levels => levels.greatest_bytes));
  // A small job on a large device: the capacity would press everything to the ground.
  const showCapacity = capacity !== null && capacity < 8 * peak;
  const x = scaleLinear([0, end], [kLeft, width - 4]);
  const y = scaleLinear([0, (showCapacity ? Math.max(capacity!, peak) : peak) * 1.08 || 1], [kHeight, 8]);
  const gib = 2 ** Math.floor(Math.log2(Math.max(y.domain()[1] / 4, 1)));
  const ticks = Array.from({length: Math.floor(y.domain()[1] / gib) + 1}, (_, i) => i * gib).filter((_, i, list) => list.length < 8 || i % 2 === 0);
  const words = all.map(levels => `${levels.kind} at most ${bytes(Math.max(...levels.greatest_bytes))}`).join(', ');
  const root = s('svg', {width, height: kHeight + 22, role: 'img', 'aria-label': `Memory of ${data.rankName(row)} over the run: ${words}`},
                 ...leftAxis(Object.assign((value: number) => y(value), {ticks: () => ticks}), kLeft, width, bytes),
                 ...bottomAxis(x.ticks(4), x, kHeight + 17, duration));
  const window = windowOf(data, store, row, end);
  if (window !== null) root.append(rect(x(window[0]), 8, Math.max(x(window[1]) - x(window[0]), 2), kHeight - 8, 'selected-steps'));
  for (const levels of stacked) {
    const base = [...sums];
    times.forEach((ns, i) => { sums[i] += levelAt(levels, ns); });
    root.append(s('path', {class: `memory area kind-${levels.kind}`, d: area<number>().x(i => x(times[i])).y0(i => y(base[i])).y1(i => y(sums[i])).curve(curveStepAfter)(points)}));
  }
  for (const levels of lines) {
    root.append(s('path', {class: `memory-line ${levels.kind === 'tensors' ? 'tensors' : 'pinned'}`,
                           d: `M${times.map((ns, i) => `${i > 0 ? `H${x(ns).toFixed(1)}V` : `${x(ns).toFixed(1)} `}${y(levelAt(levels, ns)).toFixed(1)}`).join('')}`}));
  }
  if (showCapacity) {
    root.append(s('line', {x1: kLeft, x2: width, y1: y(capacity!), y2: y(capacity!), class: 'limit'}),
                text(width - 4, y(capacity!) - 4, `capacity ${bytes(capacity!)}`, 'end'));
  }
  if (device && device.high_water_at_ns) {
    const at = x(Math.max(0, device.high_water_at_ns - data.report.conditions.start_ns));
    root.append(s('circle', {cx: at, cy: y(device.high_water_bytes), r: 4, class: 'late'}),
                text(at > width / 2 ? at - 7 : at + 7, Math.max(y(device.high_water_bytes) - 6, 10), `high-water mark ${bytes(device.high_water_bytes)}`, at > width / 2 ? 'end' : 'start'));
  }
  root.addEventListener('mousemove', event => {
    const ns = x.invert(event.clientX - root.getBoundingClientRect().left);
    if (ns < 0 || ns > end) return hideTooltip();
    showTooltip(event.clientX, event.clientY, [`${duration(ns)} after the start`, ...all.map(levels => `${levels.kind} ${bytes(levelAt(levels, ns))}`)]);
  });
  root.addEventListener('mouseleave', hideTooltip);
  return root;
}

function legend(data: Data, row: number): HTMLElement {
  const kinds = data.memory.filter(levels => levels.row === row).map(levels => levels.kind);
  const words: Record<string, string> = {tensors: "PyTorch's tensors (line)", host_pinned: 'pinned host memory (line)'};
  const css = (kind: string): string => kind === 'tensors' ? 'tensors-key' : kind === 'host_pinned' ? 'pinned-key' : `memory kind-${kind}`;
  return h('p', {class: 'legend'}, ...[...new Set(kinds)].map(kind => h('span', {}, h('i', {class: css(kind)}), words[kind] ?? kind)));
}

// Peaks by phase, and what the highest level was made of.
function details(data: Data, store: Store, row: number): HTMLElement {
  const rank = data.report.ranks[row];
  const source = rank.memory?.pytorch?.[0] ?? rank.device_memory?.[0];
  const bySteps: MemoryBySteps | null = source?.by_step ?? null;
  const lifetimes: MemoryLifetimes | null = source?.lifetimes ?? null;
  const device = rank.device_memory?.[0];
  const out: (string | null)[] = [inWindow(data, store, row) || null];
  if (device) {
    out.push(`High-water mark ${bytes(device.high_water_bytes)}${device.capacity_bytes ? ` of ${bytes(device.capacity_bytes)}` : ''} obtained by driver calls.`);
  }
  if (bySteps && bySteps.phases.length > 0)
    out.push(`Highest level by phase: ${bySteps.phases.map(phase => `${phase.name} ${bytes(phase.peak_bytes)}`).join(', ')}.`);
  if (lifetimes && !lifetimes.why_not && lifetimes.holdings.length > 0)
    out.push(`At the highest level within a step: ${lifetimes.holdings.map(part => `${part.what} ${bytes(part.bytes)}${part.inferred ? ' (inferred)' : ''}`).join(', ')}.`);
  if (source?.trend?.growth_bytes_per_step) out.push(`It grows by ${bytes(Math.round(source.trend.growth_bytes_per_step))} a step.`);
  return h('p', {class: 'note'}, out.filter(words => words !== null).join(' '));
}

export function memory(data: Data, store: Store): HTMLElement | null {
  const rows = [...new Set(data.memory.map(levels => levels.row))];
  if (rows.length === 0) return null;
  const {root, controls, body} = section('memory', 'Memory over the run');
  const peak = (row: number): number => data.report.ranks[row].device_memory?.[0]?.high_water_bytes ?? 0;
  const view = store.settings.of<{rank: string | null}>('memory', {rank: null});
  const [selected] = store.value.ranks;
  const held = store.value.ranks.size === 1 && rows.includes(selected!) ? selected! : view.rank === null ? -1 : data.rowOfKey(view.rank);
  let chosen = rows.includes(held) ? held : rows.reduce((best, row) => peak(row) > peak(best) ? row : best, rows[0]);
  const plot = h('div', {class: 'plot'});
  const around = h('div', {});
  const show = (row: number): void => {
    chosen = row;
    around.replaceChildren(legend(data, row), plot, details(data, store, row));
    redraw();
  };
  const choose = (row: number): void => {
    view.rank = data.key(row);
    show(row);
  };
  const choice = select('Rank', rows.map((row): [string, string] => [String(row), `${data.rankName(row)} (${data.place(row)})`]), String(chosen),
                        value => choose(Number(value)));
  const redraw = responsive(plot, width => plot.replaceChildren(draw(data, store, chosen, width)));
  controls.append(choice, saveButton(plot, 'memory'));
  body.append(around);
  show(chosen);
  const missing = h('p', {class: 'note', hidden: true});
  body.append(missing);
  store.follow(({ranks}, changed) => {
    const row = [...ranks][0];
    if (changed.has('ranks')) {
      missing.hidden = ranks.size !== 1 || rows.includes(row!);
      missing.textContent = missing.hidden ? '' : `The page has no memory of ${data.rankName(row!)}, only of ${rows.map(each => data.shortName(each)).join(', ')}.`;
    }
    if (changed.has('ranks') && ranks.size === 1 && rows.includes(row!)) {
      choice.querySelector('select')!.value = String(row);
      choose(row!);
    } else if (changed.has('steps')) {
      show(chosen);
    }
  });
  return root;
}
