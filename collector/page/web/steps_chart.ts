// Step time over the run, stacked by where it went: all ranks' mean, or one rank. Dragging selects steps, a
// click selects one, and late steps are marked above the bars.
import {brushX} from 'd3-brush';
import {scaleLinear} from 'd3-scale';
import {event as d3event, select as d3select} from 'd3-selection';
import {Data, kPartClass, kParts, kPartWords, Part, StepGrid} from './data';
import {button, h, rect, responsive, s, section, select, text} from './dom';
import {stepsWords} from './header';
import {saveButton} from './picture_file';
import {Store} from './selection';
import {announce, hideTooltip, showTooltip} from './tooltip';
import {duration, percent} from './units';

const kHeight = 150;
const kTop = 22;  // for marks
const kLane = 9;  // of late ranks, below the bars
const kAxis = 18;
const kLeft = 52;
const kMostUsual = 2;  // times the median step: longer ones are cut off
const kDoubleClickMs = 400;
const kStuckShare = 0.06;  // of the width, for a hang after the last step
const kStill = 3;  // pixels: a mouse that moves less clicks
const kBlamedShare = 0.05;  // of the step: a rank that the others wait for as long is late

// By column: the parts of the mean step of all ranks, or of one; NaN where there is none.
export function stackOf(grid: StepGrid, row: number | null): Record<Part, number>[] {
  const out: Record<Part, number>[] = [];
  for (let column = 0; column < grid.columns; ++column) {
    const sums: Record<Part, number> = {compute_ns: 0, exposed_comm_ns: 0, copy_ns: 0, idle_ns: 0};
    let n = 0;
    const from = row ?? 0;
    const to = row === null ? grid.rows : row + 1;
    for (let r = from; r < to; ++r) {
      if (Number.isNaN(grid.total[grid.at(r, column)])) continue;
      ++n;
      for (const part of kParts) sums[part] += grid.part(part, r, column);
    }
    for (const part of kParts) sums[part] = n > 0 ? sums[part] / n : NaN;
    out.push(sums);
  }
  return out;
}

// By column: the row that the others waited for longest, and the share of its step; share 0 if for none.
export function latest(grid: StepGrid, warmup: number): {row: number; share: number}[] {
  const out: {row: number; share: number}[] = [];
  for (let column = 0; column < grid.columns; ++column) {
    let best = {row: -1, share: 0};
    if (column * grid.stepsPerColumn < warmup) {
      out.push(best);
      continue;
    }
    for (let row = 0; row < grid.rows; ++row) {
      const i = grid.at(row, column);
      const share = grid.caused[i] / grid.total[i];
      if (share >= kBlamedShare && share > best.share) best = {row, share};
    }
    out.push(best);
  }
  return out;
}

function barPaths(stack: Record<Part, number>[], first: number, last: number, x: (column: number) => number,
                  y: (ns: number) => number): SVGElement[] {
  const paths: Record<Part, string> = {compute_ns: '', exposed_comm_ns: '', copy_ns: '', idle_ns: ''};
  for (let column = first; column <= last; ++column) {
    let sum = 0;
    const left = x(column);
    const width = Math.max(x(column + 1) - left - (x(1) - x(0) > 4 ? 0.8 : 0), 0.4);
    for (const part of kParts) {
      const value = stack[column][part];
      if (!(value > 0)) continue;
      paths[part] += `M${left.toFixed(2)} ${y(sum).toFixed(2)}H${(left + width).toFixed(2)}V${y(sum + value).toFixed(2)}H${left.toFixed(2)}Z`;
      sum += value;
    }
  }
  return kParts.map(part => s('path', {d: paths[part], class: kPartClass[part]}));
}

// What the viewer has set: the first and the last step shown (null: all), and the rank (null: all ranks' mean).
interface View { steps: [number, number] | null; rank: string | null }

class StepsChart {
  private readonly view: View;
  private clicked = -Infinity;
  private moving = false;  // the page moves the brush, not a person
  private readonly grid: StepGrid;
  private readonly stacks = new Map<number | null, Record<Part, number>[]>();  // by row
  private readonly late: {row: number; share: number}[];
  private readonly legend = h('p', {class: 'legend'});
  private readonly plot = h('div', {class: 'plot', tabindex: 0, role: 'group', 'aria-label':
      'Steps. Arrow keys move the cursor, Enter selects the step, Escape selects all.'});
  private readonly from = h('input', {type: 'number', 'aria-label': 'First step selected'});
  private readonly to = h('input', {type: 'number', 'aria-label': 'Last step selected'});
  private readonly redraw: () => void;

  constructor(private readonly data: Data, private readonly store: Store, controls: HTMLElement, body: HTMLElement) {
    this.grid = data.grid!;
    this.view = store.settings.of<View>('steps', {steps: null, rank: null});
    this.late = latest(this.grid, data.report.steps?.warmup_count ?? 0);
    const ranks: [string, string][] = data.report.ranks.map((_, row) => [String(row), `${data.rankName(row)} only`]);
    const typed = (): void => this.choose(this.grid.columnOf(Number(this.from.value)), this.grid.columnOf(Number(this.to.value)));
    this.from.addEventListener('change', typed);
    this.to.addEventListener('change', typed);
    controls.append(
        select('Show', [['all', 'mean of all ranks'], ...ranks], String(this.row() ?? 'all'), value => {
          this.view.rank = value === 'all' ? null : data.key(Number(value));
          this.fillLegend();
          this.redraw();
        }),
        h('span', {class: 'range'}, 'steps ', this.from, ' to ', this.to),
        button('Zoom in', () => this.zoom(this.store.value.steps), 'Show only the selected steps'),
        button('All steps', () => { this.store.set({steps: null}); this.zoom(null); }), saveButton(this.plot, 'steps'));
    body.append(this.legend, this.plot);
    this.fillLegend();
    this.redraw = responsive(this.plot, width => this.draw(width));
    this.plot.addEventListener('keydown', event => this.press(event));
    store.follow((_, changed) => {
      if (changed.has('steps')) this.fillLegend();
      if (['steps', 'cursor', 'ranks'].some(key => changed.has(key as never))) this.redraw();
    });
  }

  // With the means of the bars: of the run as the report has them, or of the rank that is shown and the steps that are selected.
  private fillLegend(): void {
    const ofRun = this.data.report.steps;
    const row = this.row();
    const chosen = this.store.value.steps;
    const isPart = row !== null || chosen !== null;
    const means = isPart ? this.grid.meanOf(new Set(row === null ? [] : [row]), chosen, ofRun?.warmup_count ?? 0) : null;
    const mean = (part: Part): HTMLElement | null => {
      if (isPart) return h('b', {}, means === null ? '-' : duration(means[part]));
      return ofRun ? h('b', {'data-path': `steps.${part}.mean`, 'data-unit': 'ns'}, duration(ofRun[part].mean)) : null;
    };
    const of = [row === null ? 'mean of all ranks' : this.data.rankName(row), ...(chosen === null ? [] : [stepsWords(this.data, chosen)])];
    this.legend.replaceChildren(
        ...kParts.map(part => h('span', {}, h('i', {class: kPartClass[part]}), `${kPartWords[part]} `, mean(part))),
        ...(isPart ? [h('span', {class: 'of'}, of.join(', '))] : []),
        ...this.lateWords().map(([css, words]) => h('span', {}, h('i', {class: css}), words)));
  }

  // Red is for ranks that a finding names: a healthy rank is last now and then.
  private lateWords(): [string, string][] {
    const rows = this.late.filter(({share}) => share > 0).map(({row}) => this.data.blames(row));
    const named = rows.includes(true);
    return [...(named ? [['late', 'the others wait for a rank that a finding names'] as [string, string]] : []),
            ...(rows.includes(false) ? [['quiet', named ? 'for another rank' : 'the others wait for one rank'] as [string, string]] : [])];
  }

  // In words: what the job hung in when its records ended; null: in nothing.
  private stuck(): string | null {
    const hang = this.data.report.hangs.find(({over}) => !over);
    return hang === undefined ? null : `no further step: hangs for ${duration(hang.waiting_ns)}`;
  }

  // Columns shown.
  private shown(): [number, number] {
    return this.grid.columnsOf(this.view.steps);
  }
  private row(): number | null {
    const row = this.view.rank === null ? -1 : this.data.rowOfKey(this.view.rank);
    return row < 0 ? null : row;
  }

  private stack(row: number | null): Record<Part, number>[] {
    let stack = this.stacks.get(row);
    if (stack === undefined) this.stacks.set(row, stack = stackOf(this.grid, row));
    return stack;
  }

  private zoom(steps: [number, number] | null): void {
    this.view.steps = steps;
    this.redraw();
  }
  private choose(first: number, last: number): void {
    this.store.set({steps: [this.grid.stepOf(Math.min(first, last)), this.grid.lastStepOf(Math.max(first, last))]});
  }

  private press(event: KeyboardEvent): void {
    const step = event.shiftKey ? 10 : 1;
    const by: Record<string, number> = {ArrowLeft: -step, ArrowRight: step, Home: -this.grid.columns, End: this.grid.columns};
    const [first, last] = this.shown();
    const cursor = this.store.value.cursor ?? {row: 0, column: first};
    if (event.key in by) {
      const column = Math.max(first, Math.min(last, cursor.column + by[event.key]));
      this.store.set({cursor: {...cursor, column}});
      announce(this.words(column).join('; '));
    } else if (event.key === 'Enter') {
      this.choose(cursor.column, cursor.column);
    } else if (event.key === 'Escape') {
      this.store.set({steps: null});
    } else {
      return;
    }
    event.preventDefault();
  }

  private words(column: number): string[] {
    const row = this.row();
    const stack = this.stack(row)[column];
    const total = kParts.reduce((sum, part) => sum + stack[part], 0);
    const who = row === null ? 'mean of all ranks' : this.data.rankName(row);
    const lines = [`${this.grid.name(column)}: ${duration(total)}`, who];
    for (const part of kParts) lines.push(`${kPartWords[part]} ${duration(stack[part])}, ${percent(stack[part] / total)}`);
    const late = this.late[column];
    if (late.share > 0) lines.push(`${this.data.rankName(late.row)} late: the others waited ${percent(late.share)} of the step`);
    if (column * this.grid.stepsPerColumn < (this.data.report.steps?.warmup_count ?? 0)) lines.push('warm-up: in no statistics');
    if (this.grid.incomplete.has(column)) lines.push('records are missing here: estimated');
    return lines;
  }

  private draw(width: number): void {
    const stack = this.stack(this.row());
    const [first, last] = this.shown();
    const stuck = last === this.grid.columns - 1 ? this.stuck() : null;
    const x = scaleLinear([first, last + 1 + (stuck === null ? 0 : Math.max(1, (last + 1 - first) * kStuckShare))], [kLeft, width - 2]);
    // A warm-up step may be a hundred times as long: it is cut off, and says so.
    const warmup = Math.ceil((this.data.report.steps?.warmup_count ?? 0) / this.grid.stepsPerColumn);
    const totals = stack.slice(Math.max(first, Math.min(last, warmup)), last + 1).map(parts => kParts.reduce((sum, part) => sum + parts[part], 0)).filter(ns => ns > 0);
    const sorted = [...totals].sort((a, b) => a - b);
    const usual = sorted[Math.floor(sorted.length / 2)] ?? 1;
    const top = Math.min(sorted[sorted.length - 1] ?? 1, kMostUsual * usual) * 1.08;
    const y = scaleLinear([0, top], [kTop + kHeight, kTop]).clamp(true);
    const root = s('svg', {width, height: kTop + kHeight + kLane + kAxis, role: 'img',
                           'aria-label': `Time of ${this.grid.columns * this.grid.stepsPerColumn} steps, stacked by compute, exposed communication, copies and idle`});
    for (const tick of y.ticks(4)) {
      root.append(s('line', {x1: kLeft, x2: width, y1: y(tick), y2: y(tick), class: 'gridline'}),
                  text(kLeft - 6, y(tick) + 4, tick === 0 ? '0' : duration(tick), 'end'));
    }
    root.append(...barPaths(stack, first, last, c => x(c), ns => y(ns)), ...this.marks(x, stack, top), ...this.axis(x, width));
    root.append(...this.laneOf(x));
    if (stuck !== null) {
      root.append(rect(x(last + 1) + 1, kTop, width - 3 - x(last + 1), kHeight, 'stuck', stuck), text(width - 2, 12, stuck, 'end', 'late-words'));
    }
    this.addBrush(root, x, width);
    this.plot.replaceChildren(root);
    const columns = this.grid.columnsOf(this.store.value.steps);
    this.from.value = String(this.grid.stepOf(columns[0]));
    this.to.value = String(this.grid.lastStepOf(columns[1]));
  }

  // One tick for each column in which the others wait for a rank.
  private laneOf(x: (column: number) => number): SVGElement[] {
    const paths = {late: '', quiet: ''};
    const [first, last] = this.shown();
    for (let column = first; column <= last; ++column) {
      const late = this.late[column];
      if (late.share > 0)
        paths[this.data.blames(late.row) ? 'late' : 'quiet'] += `M${x(column).toFixed(2)} ${kTop + kHeight + 3}h${Math.max(x(column + 1) - x(column), 1).toFixed(2)}v5h${-Math.max(x(column + 1) - x(column), 1).toFixed(2)}z`;
    }
    return [s('path', {d: paths.late, class: 'late'}), s('path', {d: paths.quiet, class: 'quiet'})];
  }

  private marks(x: (column: number) => number, stack: Record<Part, number>[], top: number): SVGElement[] {
    const out: SVGElement[] = [];
    const [first, last] = this.shown();
    const inView = (column: number): boolean => column >= first && column <= last;
    for (const long of this.data.report.long_steps?.steps ?? []) {
      const column = this.grid.columnOf(long.step);
      if (!inView(column)) continue;
      const at = x(column + 0.5);
      out.push(s('path', {d: `M${at - 4} 12h8l-4 7z`, class: 'late'}, s('title', {}, `step ${long.step} took ${duration(long.time_ns)}`)));
    }
    this.data.report.findings.forEach(finding => {
      const since = finding.about.first_step;
      if (since === null || !inView(this.grid.columnOf(since))) return;
      const at = x(this.grid.columnOf(since));
      const who = finding.about.ranks.length === 1 ? `rank ${finding.about.ranks[0]} late` : 'late';
      out.push(s('line', {x1: at, x2: at, y1: 4, y2: kTop + kHeight, class: 'mark-line'}));
      const right = at > x(last) - 150;
      out.push(text(right ? at - 5 : at + 5, 12, `${who} from step ${since}`, right ? 'end' : 'start', 'late-words'));
    });
    const cut = stack.findIndex((parts, column) => inView(column) && kParts.reduce((sum, part) => sum + parts[part], 0) > top);
    if (cut >= 0) {
      const total = kParts.reduce((sum, part) => sum + stack[cut][part], 0);
      const at = x(cut + 1);
      const right = at > x(last) - 150;
      out.push(text(right ? x(cut) - 3 : at + 3, kTop + 10, `${this.grid.name(cut)}: ${duration(total)}, cut off`, right ? 'end' : 'start'));
    }
    const cursor = this.store.value.cursor;
    if (cursor !== null && inView(cursor.column)) {
      const at = x(cursor.column + 0.5);
      out.push(s('line', {x1: at, x2: at, y1: kTop, y2: kTop + kHeight + kLane, class: 'cursor'}));
    }
    return out;
  }

  private axis(x: any, width: number): SVGElement[] {
    const [first, last] = this.shown();
    return x.ticks(Math.max(2, Math.floor(width / 110))).filter((column: number) => Number.isInteger(column) && column <= last).map((column: number) =>
      text(column === first ? x(column) : x(column + 0.5), kTop + kHeight + kLane + 12, column === first ? this.grid.name(column) : String(this.grid.stepOf(column)),
           column === first ? 'start' : x(column) > width - 24 ? 'end' : 'middle'));
  }

  private addBrush(root: SVGSVGElement, x: any, width: number): void {
    const [first, last] = this.shown();
    const columnAt = (at: number): number => Math.max(first, Math.min(last, Math.floor(x.invert(at))));
    const layer = s('g', {class: 'brush'});
    root.append(layer);
    let pressed = 0;
    const brush = brushX().extent([[kLeft, kTop], [width - 2, kTop + kHeight]]).on('start', () => {
      if (d3event.sourceEvent) pressed = d3event.sourceEvent.clientX;
    }).on('end', () => {
      const {selection, sourceEvent} = d3event;
      if (!sourceEvent || this.moving) return;
      if (selection === null || Math.abs(sourceEvent.clientX - pressed) < kStill) {
        // Each click draws anew, so that no browser sees two on one thing.
        const twice = performance.now() - this.clicked < kDoubleClickMs;
        this.clicked = performance.now();
        if (twice) {
          this.store.set({steps: null});
          return this.zoom(null);
        }
        const column = columnAt(sourceEvent.clientX - root.getBoundingClientRect().left);
        this.choose(column, column);
        return;
      }
      this.choose(columnAt(selection[0]), columnAt(selection[1] - 0.01));
    });
    const group: any = d3select(layer);
    group.call(brush);
    const columns = this.grid.columnsOf(this.store.value.steps);
    if (this.store.value.steps !== null && columns[1] >= first && columns[0] <= last) {
      this.moving = true;
      group.call(brush.move, [x(Math.max(columns[0], first)), x(Math.min(columns[1], last) + 1)]);
      this.moving = false;
    }
    root.addEventListener('mousemove', event => {
      const at = event.clientX - root.getBoundingClientRect().left;
      if (at < kLeft) return hideTooltip();
      showTooltip(event.clientX, event.clientY, this.words(columnAt(at)));
    });
    root.addEventListener('mouseleave', hideTooltip);
  }
}

export function stepsChart(data: Data, store: Store): HTMLElement | null {
  if (data.grid === null) return null;
  const {root, controls, body} = section('steps', 'Steps', 'Drag over the bars to select steps; everything below follows.');
  new StepsChart(data, store, controls, body);
  if (data.grid.stepsPerColumn > 1)
    body.append(h('p', {class: 'note'}, `Each bar is the mean of ${data.grid.stepsPerColumn} steps: the run has more steps than the page keeps apart.`));
  return root;
}
