// Two runs on one page: what changed in words, their steps in one chart, and tables of A, B and the change.
import {scaleLinear} from 'd3-scale';
import {bottomAxis, leftAxis} from './chart';
import {kParts, RawSteps, StepGrid} from './data';
import {append, drawNow, h, responsive, s, section} from './dom';
import {themeButton} from './header';
import {Settings} from './settings';
import {stackOf} from './steps_chart';
import {Column, table} from './table';
import {hideTooltip, installTooltip, showTooltip} from './tooltip';
import {ceilingNs, duration} from './units';

interface Sample { steps: number; mean_ns: number; std_ns: number }
interface Test { difference_ns: number; low_ns: number; high_ns: number; adjusted_p_value: number }
interface Side { calls_per_step: number; mean_ns: number; wait_ns?: number | null }
interface Work { name: string; a: Side; b: Side; change_ns_per_step: number; low_ns: number; high_ns: number }
interface Comparison {
  a: string; b: string; verdict: string; caution: string; level: number; per_step: boolean; limits: string[]; doubts: {a: string[]; b: string[]};
  changes: {statement: string; evidence: string; change_ns_per_step: number}[];
  steps: {name: string; a: Sample; b: Sample; test: Test | null; significant: boolean}[];
  ranks: {rank: number; part: string; a: Sample; b: Sample; test: Test | null; differs_from_others: boolean}[];
  kernels: Work[]; collectives: Work[];
  findings: {id: string; only_in: 'a' | 'b'; statement: string}[];
  conditions: {what: string; a: string; b: string}[];
}
interface RawRun { steps: RawSteps | null; warmup: number }
interface Run { name: 'A' | 'B'; css: string; grid: StepGrid; warmup: number; total: number[] }

function parse<T>(id: string): T { return JSON.parse(document.getElementById(id)!.textContent!); }

function signed(ns: number): string { return (ns < 0 ? '−' : '+') + duration(Math.abs(ns)); }
function share(a: number, b: number): string {
  if (a <= 0) return '-';
  const change = (b / a - 1) * 100;
  return `${change < 0 ? '−' : '+'}${Math.abs(change).toFixed(1)} %`;
}

function runOf(name: 'A' | 'B', raw: RawRun): Run[] {
  if (raw.steps === null) return [];
  const grid = new StepGrid(raw.steps);
  return [{name, css: name === 'A' ? 'run-a' : 'run-b', grid, warmup: raw.warmup, total: stackOf(grid, null).map(parts => kParts.reduce((sum, part) => sum + parts[part], 0))}];
}

// By the step's number from the start of each run; the warm-up is cut off at the top.
function drawSteps(runs: Run[], width: number): SVGSVGElement {
  const kHeight = 170, kLeft = 58;
  const last = Math.max(...runs.map(({grid}) => grid.lastStepOf(grid.columns - 1)));
  const shown = runs.flatMap(({grid, total, warmup}) => total.filter((ns, column) => !Number.isNaN(ns) && grid.stepOf(column) >= warmup)).sort((a, b) => a - b);
  const usual = shown[Math.floor(shown.length * 0.98)] ?? 1;
  const most = Math.min(shown[shown.length - 1] ?? 1, 2 * usual);
  const x = scaleLinear([0, last + 1], [kLeft, width - 4]);
  const y = scaleLinear([0, ceilingNs(most)], [kHeight, 8]).clamp(true);
  const ticks = scaleLinear([0, last], [0, 1]).ticks(Math.max(2, Math.min(8, width / 90))).filter(Number.isInteger);
  const root = s('svg', {width, height: kHeight + 22, role: 'img', 'aria-label': `Step time of both runs, ${runs.map(({name, total}) => `${name} ends with ${duration(total[total.length - 1]!)}`).join(', ')}`},
                 ...leftAxis(y, kLeft, width, duration, 5), ...bottomAxis(ticks, x, kHeight + 17, step => `step ${step}`));
  for (const {grid, total, css} of runs) {
    const points = total.flatMap((ns, column) => Number.isNaN(ns) ? [] : [`${x(grid.stepOf(column) + grid.stepsPerColumn / 2).toFixed(1)},${y(ns).toFixed(1)}`]);
    root.append(s('polyline', {points: points.join(' '), class: css}));
  }
  root.addEventListener('mousemove', event => {
    const step = Math.floor(x.invert(event.clientX - root.getBoundingClientRect().left));
    const lines = runs.flatMap(({name, grid, total}) => {
      const ns = step < grid.first || step > grid.lastStepOf(grid.columns - 1) ? NaN : total[grid.columnOf(step)]!;
      return Number.isNaN(ns) ? [] : [`${name} ${duration(ns)}`];
    });
    if (lines.length === 0) return hideTooltip();
    showTooltip(event.clientX, event.clientY, [`step ${step}`, ...lines]);
  });
  root.addEventListener('mouseleave', hideTooltip);
  return root;
}

function changes(of: Comparison): HTMLElement {
  const root = h('section', {id: 'findings', 'aria-labelledby': 'changes-title'}, h('h2', {id: 'changes-title'}, of.verdict));
  append(root, of.limits.map(limit => h('p', {class: 'note'}, limit)));
  append(root, [...of.doubts.a.map(doubt => h('p', {class: 'note'}, `A: ${doubt}`)), ...of.doubts.b.map(doubt => h('p', {class: 'note'}, `B: ${doubt}`))]);
  append(root, of.changes.map((change, i) => h('article', {class: 'finding'}, h('span', {class: 'mark', 'aria-hidden': 'true'}, String(i + 1)),
      h('div', {class: 'words'}, h('h3', {}, change.statement), change.evidence ? h('p', {}, change.evidence) : null))));
  if (of.caution !== '') root.append(h('p', {class: 'note'}, of.caution));
  return root;
}

function stepsOf(runs: Run[]): HTMLElement | null {
  if (runs.length === 0) return null;
  const {root, body} = section('steps', 'Steps', 'Mean over the ranks, by the number of the step.');
  const plot = h('div', {class: 'plot'});
  body.append(h('p', {class: 'legend'}, ...runs.map(({name, css}) => h('span', {}, h('i', {class: css}), name))), plot);
  responsive(plot, width => plot.replaceChildren(drawSteps(runs, width)));
  return root;
}

const kTests = (level: number): string => `In bold: beyond chance at a level of ${level * 100} % over all comparisons. The interval is the change's, at 95 %.`;

type Tested = {a: Sample; b: Sample; test: Test | null};
function tested<Row extends Tested>(): Column<Row>[] {
  return [
    {title: 'A', unit: 'ns', number: ({a}) => a.mean_ns, text: ({a}) => duration(a.mean_ns)},
    {title: 'B', unit: 'ns', number: ({b}) => b.mean_ns, text: ({b}) => duration(b.mean_ns)},
    {title: 'change', unit: 'ns', number: ({a, b}) => b.mean_ns - a.mean_ns, text: ({a, b}) => signed(b.mean_ns - a.mean_ns)},
    {title: 'of A', text: ({a, b}) => share(a.mean_ns, b.mean_ns)},
    {title: 'interval', text: ({test}) => test === null ? '-' : `${signed(test.low_ns)} to ${signed(test.high_ns)}`}];
}

function parts(of: Comparison, settings: Settings): HTMLElement | null {
  if (of.steps.length === 0) return null;
  const {root, body} = section('step-times', 'Where a step goes', kTests(of.level));
  body.append(table({id: 'part-table', label: 'Parts of a step', rows: of.steps, chosen: ({significant}) => significant,
                     columns: [{title: 'per step', text: ({name}) => name}, ...tested<Comparison['steps'][number]>()]}, settings));
  return root;
}

function ranks(of: Comparison, settings: Settings): HTMLElement | null {
  if (of.ranks.length === 0) return null;
  const {root, body} = section('ranks', 'Ranks that changed', 'Beyond chance. In bold: otherwise than the others.');
  body.append(table({id: 'rank-table', label: 'Ranks that changed', rows: of.ranks, most: 16, chosen: row => row.differs_from_others,
                     columns: [{title: 'rank', number: ({rank}) => rank, text: ({rank}) => `rank ${rank}`}, {title: 'part', text: ({part}) => part},
                               ...tested<Comparison['ranks'][number]>()]}, settings));
  return root;
}

function work(id: string, title: string, rows: Work[], waits: boolean, settings: Settings): HTMLElement | null {
  if (rows.length === 0) return null;
  const {root, body} = section(id, title, 'Those that changed beyond chance, of a rank and step.');
  const side = (name: 'a' | 'b'): Column<Work>[] => [
    {title: `${name.toUpperCase()} calls`, number: row => row[name].calls_per_step, text: row => String(Math.round(row[name].calls_per_step * 10) / 10)},
    {title: `${name.toUpperCase()} ${waits ? 'transfer' : 'mean'}`, unit: 'ns', number: row => row[name].mean_ns, text: row => row[name].calls_per_step > 0 ? duration(row[name].mean_ns) : '-'},
    ...(waits ? [{title: `${name.toUpperCase()} wait`, unit: 'ns', number: (row: Work) => row[name].wait_ns ?? null, text: (row: Work) => row[name].wait_ns === null || row[name].wait_ns === undefined ? '-' : duration(row[name].wait_ns!)}] : [])];
  body.append(table<Work>({
    id: `${id}-table`, label: title, rows, most: 20, search: rows.length > 8 ? 'Search' : undefined, matches: (row, words) => row.name.toLowerCase().includes(words),
    columns: [{title: waits ? 'collective' : 'kernel', text: row => row.name, wide: true}, ...side('a'), ...side('b'),
              {title: 'change a step', unit: 'ns', number: row => row.change_ns_per_step, text: row => signed(row.change_ns_per_step)}]}, settings));
  return root;
}

function lists(of: Comparison, settings: Settings): HTMLElement[] {
  const out: HTMLElement[] = [];
  if (of.findings.length > 0) {
    const {root, body} = section('only', 'Findings that only one run has');
    body.append(table({id: 'finding-table', label: 'Findings that only one run has', rows: of.findings, columns: [
      {title: 'run', text: row => row.only_in.toUpperCase()}, {title: 'finding', text: row => row.id}, {title: 'statement', text: row => row.statement, wide: true}]}, settings));
    out.push(root);
  }
  if (of.conditions.length > 0) {
    const {root, body} = section('conditions', 'Conditions that differ');
    body.append(table({id: 'condition-table', label: 'Conditions that differ', rows: of.conditions, columns: [
      {title: 'what', text: row => row.what}, {title: 'A', text: row => row.a, wide: true}, {title: 'B', text: row => row.b, wide: true}]}, settings));
    out.push(root);
  }
  return out;
}

export function showComparison(): void {
  installTooltip();
  const of = parse<Comparison>('comparison-data');
  const settings = new Settings();
  const runs = [...runOf('A', parse<RawRun>('run-a')), ...runOf('B', parse<RawRun>('run-b'))];
  const main = h('main', {id: 'main', tabindex: -1});
  append(main, [changes(of), stepsOf(runs), parts(of, settings), ranks(of, settings), work('kernels', 'Kernels', of.kernels, false, settings),
                work('collectives', 'Collectives', of.collectives, true, settings), ...lists(of, settings)]);
  document.body.prepend(h('a', {href: '#main', class: 'skip'}, 'Skip to the changes'),
                        h('header', {}, h('h1', {}, 'Two runs'), h('span', {}, h('i', {class: 'run-a'}), ` A: ${of.a}`), h('span', {}, h('i', {class: 'run-b'}), ` B: ${of.b}`), themeButton()), main);
  document.title = 'Two runs - gpuprobe';
  drawNow();
  document.documentElement.dataset.ready = 'true';
}
