// What kind of work takes the GPUs' time over the steps: stacked by kernel class, the mean of a step and rank.
import {scaleLinear} from 'd3-scale';
import {bottomAxis, leftAxis} from './chart';
import {Data} from './data';
import {h, rect, responsive, s} from './dom';
import {Store} from './selection';
import {hideTooltip, showTooltip} from './tooltip';
import {ceilingNs, duration, percent} from './units';
import {Work} from './work';

const kHeight = 110;
const kLeft = 58;

interface Column { column: number; all_ns: number; classes: Map<string, number> }

// Of the selected ranks. Communication counts with its waiting, as its kernels do.
function columnsOf(data: Data, store: Store): Column[] {
  const grid = data.work!;
  const {ranks} = store.value;
  const works: [string, Work][] = [...[...grid.kernels].map(([place, work]): [string, Work] => [data.kernels[place]!.class, work]),
                                   ...[...grid.collectives.values()].map((work): [string, Work] => ['collective', work])];
  const out: Column[] = [];
  for (let column = 0; column < grid.columns; ++column) {
    const one: Column = {column, all_ns: 0, classes: new Map()};
    for (const [name, work] of works) {
      const mean = grid.meanOfStep(work, ranks, column);
      if (mean === null || mean === 0) continue;
      one.all_ns += mean;
      one.classes.set(name, (one.classes.get(name) ?? 0) + mean);
    }
    if (one.all_ns > 0) out.push(one);
  }
  return out;
}

function draw(data: Data, store: Store, columns: Column[], order: string[], width: number, css: (name: string) => string): SVGSVGElement {
  const grid = data.work!;
  const x = scaleLinear([0, grid.columns], [kLeft, width - 4]);
  const warmup = data.report.steps?.warmup_count ?? 0;
  const steady = columns.filter(one => grid.stepOf(one.column) >= warmup);
  const top = ceilingNs(Math.max(...(steady.length > 0 ? steady : columns).map(one => one.all_ns)));
  const y = scaleLinear([0, top], [kHeight, 8]).clamp(true);
  const ticks = scaleLinear([grid.stepOf(0), grid.lastStepOf(grid.columns - 1)], [0, 1]).ticks(Math.max(2, Math.min(8, width / 110))).filter(Number.isInteger);
  const at = (step: number): number => x((step - grid.stepOf(0)) / grid.stepsPerColumn);
  const paths = new Map<string, string>(order.map(name => [name, '']));
  for (const {column, classes} of columns) {
    let sum = 0;
    const [left, right] = [x(column), Math.max(x(column + 1) - (x(1) - x(0) > 4 ? 0.8 : 0), x(column) + 0.4)];
    for (const name of order) {
      const ns = classes.get(name) ?? 0;
      if (ns > 0) paths.set(name, `${paths.get(name)}M${left.toFixed(2)} ${y(sum).toFixed(2)}H${right.toFixed(2)}V${y(sum + ns).toFixed(2)}H${left.toFixed(2)}Z`);
      sum += ns;
    }
  }
  const root = s('svg', {width, height: kHeight + 22, role: 'img', 'aria-label': `GPU time of a step by class: ${order.join(', ')}`},
                 ...leftAxis(y, kLeft, width, duration, 4), ...bottomAxis(ticks, at, kHeight + 17, step => `step ${step}`),
                 ...order.map(name => s('path', {d: paths.get(name)!, class: css(name)})));
  const {steps} = store.value;
  if (steps !== null) {
    const [from, to] = grid.columnsOf(steps);
    root.append(rect(x(from), 8, x(to + 1) - x(from), kHeight - 8, 'selected-steps'));
  }
  root.addEventListener('mousemove', event => {
    const column = Math.floor(x.invert(event.clientX - root.getBoundingClientRect().left));
    const one = columns.find(each => each.column === column);
    if (one === undefined) return hideTooltip();
    const [first, last] = [grid.stepOf(column), grid.lastStepOf(column)];
    showTooltip(event.clientX, event.clientY, [first === last ? `step ${first}` : `steps ${first} to ${last}`, `${duration(one.all_ns)} of GPU time a step and rank`,
                ...order.flatMap(name => one.classes.has(name) ? [`${name} ${duration(one.classes.get(name)!)}, ${percent(one.classes.get(name)! / one.all_ns)}`] : [])]);
  });
  root.addEventListener('mouseleave', hideTooltip);
  return root;
}

// `css`: of a class. null: the page has no steps, or nothing in them.
export function classChart(data: Data, store: Store, css: (name: string) => string): HTMLElement | null {
  if (data.work === null || data.work.columns < 2) return null;
  let columns = columnsOf(data, store);
  if (columns.length === 0) return null;
  const sums = new Map<string, number>();
  for (const {classes} of columns) classes.forEach((ns, name) => sums.set(name, (sums.get(name) ?? 0) + ns));
  const order = [...sums].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const plot = h('div', {class: 'plot', id: 'class-chart'});
  const redraw = responsive(plot, width => plot.replaceChildren(columns.length > 0 ? draw(data, store, columns, order, width, css) : h('p', {class: 'note'}, 'Nothing ran on these ranks.')));
  store.follow((_, changed) => {
    if (changed.has('ranks')) columns = columnsOf(data, store);
    if (changed.has('ranks') || changed.has('steps')) redraw();
  });
  return plot;
}
