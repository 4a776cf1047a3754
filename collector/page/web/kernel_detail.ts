// One kernel: how long a call takes over the steps, on each rank and in which phases.
import {scaleLinear} from 'd3-scale';
import {bottomAxis, leftAxis} from './chart';
import {Data} from './data';
import {button, h, rect, responsive, s, text} from './dom';
import {Store} from './selection';
import {hideTooltip, showTooltip} from './tooltip';
import {ceilingNs, count, duration, percent, plural} from './units';
import {Work} from './work';

const kHeight = 130;
const kLeft = 58;
const kBar = 14;
const kMostBars = 32;

interface Column { column: number; mean: number; least: number; most: number; leastRow: number; mostRow: number }

// Mean of a call by column: of all calls of these rows, and of the fastest and the slowest row.
function overSteps(data: Data, work: Work, rows: Set<number>): Column[] {
  const grid = data.work!;
  const out: Column[] = [];
  for (let column = 0; column < grid.columns; ++column) {
    const one: Column = {column, mean: 0, least: Infinity, most: -Infinity, leastRow: -1, mostRow: -1};
    let calls = 0;
    for (let row = 0; row < data.report.ranks.length; ++row) {
      if (rows.size > 0 && !rows.has(row)) continue;
      const cell = row * grid.columns + column;
      const mean = work.mean_ns[cell];
      if (Number.isNaN(mean)) continue;
      calls += work.calls(cell);
      one.mean += mean * work.calls(cell);
      if (mean < one.least) Object.assign(one, {least: mean, leastRow: row});
      if (mean > one.most) Object.assign(one, {most: mean, mostRow: row});
    }
    if (calls > 0) out.push({...one, mean: one.mean / calls});
  }
  return out;
}

function stepWords(data: Data, column: number): string {
  const grid = data.work!;
  const [first, last] = [grid.stepOf(column), grid.lastStepOf(column)];
  return first === last ? `step ${first}` : `steps ${first} to ${last}`;
}

function drawSteps(data: Data, store: Store, columns: Column[], width: number): SVGSVGElement {
  const grid = data.work!;
  const x = scaleLinear([0, grid.columns], [kLeft, width - 4]);
  // The warm-up is cut off at the top.
  const warmup = data.report.steps?.warmup_count ?? 0;
  const steady = columns.filter(one => grid.stepOf(one.column) >= warmup);
  const y = scaleLinear([0, ceilingNs(Math.max(...(steady.length > 0 ? steady : columns).map(one => one.most)))], [kHeight, 8]).clamp(true);
  const middle = (column: number): number => x(column + 0.5);
  const ticks = scaleLinear([grid.stepOf(0), grid.lastStepOf(grid.columns - 1)], [0, 1]).ticks(Math.max(2, Math.min(6, width / 90))).filter(Number.isInteger);
  const at = (step: number): number => x((step - grid.stepOf(0)) / grid.stepsPerColumn);
  const first = columns[0]!, last = columns[columns.length - 1]!;
  const root = s('svg', {width, height: kHeight + 22, role: 'img', 'aria-label':
                     `A call took ${duration(first.mean)} in ${stepWords(data, first.column)} and ${duration(last.mean)} in ${stepWords(data, last.column)}, the slowest rank's ${duration(Math.max(...columns.map(one => one.most)))}`},
                 ...leftAxis(y, kLeft, width, duration, 4), ...bottomAxis(ticks, at, kHeight + 17, step => `step ${step}`));
  const {steps} = store.value;
  if (steps !== null) {
    const [from, to] = grid.columnsOf(steps);
    root.append(rect(x(from), 8, x(to + 1) - x(from), kHeight - 8, 'selected-steps'));
  }
  const band = [...columns.map(one => `${middle(one.column).toFixed(1)},${y(one.most).toFixed(1)}`),
                ...columns.map(one => `${middle(one.column).toFixed(1)},${y(one.least).toFixed(1)}`).reverse()];
  root.append(s('polygon', {points: band.join(' '), class: 'spread'}),
              s('polyline', {points: columns.map(one => `${middle(one.column).toFixed(1)},${y(one.mean).toFixed(1)}`).join(' '), class: 'kernel-line'}));
  root.addEventListener('mousemove', event => {
    const column = Math.floor(x.invert(event.clientX - root.getBoundingClientRect().left));
    const one = columns.find(each => each.column === column);
    if (one === undefined) return hideTooltip();
    const spread = one.leastRow === one.mostRow ? [] :
        [`fastest ${data.rankName(one.leastRow)}, ${duration(one.least)}`, `slowest ${data.rankName(one.mostRow)}, ${duration(one.most)}`];
    showTooltip(event.clientX, event.clientY, [stepWords(data, column), `a call takes ${duration(one.mean)}`, ...spread]);
  });
  root.addEventListener('mouseleave', hideTooltip);
  return root;
}

interface Bar { row: number; mean_ns: number; calls: number }

// Of the selected steps.
function byRank(data: Data, store: Store, work: Work): Bar[] {
  const warmup = data.report.steps?.warmup_count ?? 0;
  return data.report.ranks.flatMap((_, row) => {
    const sum = data.work!.sumOf(work, new Set([row]), store.value.steps, warmup);
    return sum === null || sum.calls === 0 ? [] : [{row, mean_ns: sum.time_ns / sum.calls, calls: sum.calls}];
  });
}

function medianOf(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function drawRanks(data: Data, store: Store, bars: Bar[], width: number): SVGSVGElement {
  const shown = bars.length <= kMostBars ? bars : [...bars].sort((a, b) => b.mean_ns - a.mean_ns).slice(0, kMostBars);
  const room = 62;  // for the number
  const x = scaleLinear([0, Math.max(...shown.map(bar => bar.mean_ns))], [kLeft, Math.max(width - room, kLeft + 20)]);
  const slowest = shown.reduce((a, b) => b.mean_ns > a.mean_ns ? b : a);
  const root = s('svg', {width, height: shown.length * kBar + 4, role: 'img', 'aria-label':
                     `By rank: the slowest is ${data.rankName(slowest.row)} with ${duration(slowest.mean_ns)} a call, the median ${duration(medianOf(bars.map(bar => bar.mean_ns)))}`});
  shown.forEach((bar, i) => {
    const css = data.blames(bar.row) ? 'late' : store.value.ranks.size > 0 && !store.value.ranks.has(bar.row) ? 'compute faded' : 'compute';
    root.append(text(kLeft - 6, i * kBar + 11, data.shortName(bar.row), 'end'),
                rect(kLeft, i * kBar + 2, x(bar.mean_ns) - kLeft, kBar - 4, css, `${data.rankName(bar.row)}: ${duration(bar.mean_ns)} a call, ${plural(bar.calls, 'call')}`),
                text(x(bar.mean_ns) + 5, i * kBar + 11, duration(bar.mean_ns)));
  });
  return root;
}

function facts(data: Data, place: number, work: Work, bars: Bar[]): string {
  const kernel = data.kernels[place]!;
  const phases = Object.entries(work.phases).sort((a, b) => b[1].time_ns - a[1].time_ns);
  const all = phases.reduce((sum, [, phase]) => sum + phase.time_ns, 0);
  const out = [
    `${kernel.class}; grid ${kernel.grid.join(' x ')}, block ${kernel.block.join(' x ')}${kernel.geometries > 1 ? `, the most frequent of ${kernel.geometries} geometries` : ''}`,
    all > 0 ? `runs in ${phases.map(([name, phase]) => `${name} ${percent(phase.time_ns / all)} (${plural(phase.calls, 'call')})`).join(', ')}` : '',
    `over the run p50 ${duration(kernel.time_ns.p50)}, p95 ${duration(kernel.time_ns.p95)}, p99 ${duration(kernel.time_ns.p99)}, max ${duration(kernel.time_ns.max)}`];
  if (bars.length > 1) {
    const slowest = bars.reduce((a, b) => b.mean_ns > a.mean_ns ? b : a);
    const median = medianOf(bars.map(bar => bar.mean_ns));
    out.push(`slowest ${data.rankName(slowest.row)}, ${(slowest.mean_ns / median).toFixed(2)}x the ranks' median of ${duration(median)}`);
  }
  return `${out.filter(words => words !== '').join('; ')}.`;
}

export function kernelDetail(data: Data, store: Store, place: number, close: () => void): HTMLElement {
  const kernel = data.kernels[place]!;
  const work = data.work!.kernels.get(place)!;
  const columns = overSteps(data, work, store.value.ranks);
  const bars = byRank(data, store, work);
  const over = h('div', {class: 'plot'});
  const ranks = h('div', {class: 'plot'});
  if (columns.length > 0) responsive(over, width => over.replaceChildren(drawSteps(data, store, columns, width)));
  if (bars.length > 0) responsive(ranks, width => ranks.replaceChildren(drawRanks(data, store, bars, width)));
  const many = bars.length > kMostBars ? `, the ${count(kMostBars)} slowest of ${count(bars.length)}` : '';
  return h('div', {id: 'kernel-detail', class: 'detail', role: 'region', 'aria-label': 'The chosen kernel'},
           h('div', {class: 'head'}, h('h3', {}, kernel.name), button('Close', close, 'Close the chosen kernel')),
           h('p', {class: 'note'}, facts(data, place, work, bars)),
           h('div', {class: 'two'},
             h('div', {}, h('p', {class: 'legend'}, h('span', {}, h('i', {class: 'compute'}), 'mean of a call, by steps'),
                            data.report.ranks.length > 1 ? h('span', {}, h('i', {class: 'spread-key'}), 'from the fastest to the slowest rank') : null), over),
             h('div', {}, h('p', {class: 'legend'}, h('span', {}, `Mean of a call, by rank${many}`)), ranks)));
}
