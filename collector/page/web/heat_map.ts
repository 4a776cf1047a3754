// Ranks x steps on a canvas: how long each rank made the others wait, or how long its step took. A thousand
// ranks share pixel rows, which then show the largest value, so that no rank can hide.
import {Data, StepGrid} from './data';
import {button, h, responsive, section, select} from './dom';
import {colour, rgb} from './colours';
import {saveButton} from './picture_file';
import {Store} from './selection';
import {announce, hideTooltip, showTooltip} from './tooltip';
import {duration} from './units';

type Metric = 'caused' | 'total';
const kMetricWords: Record<Metric, string> = {caused: 'wait caused', total: 'step time'};
const kLeft = 44;
const kAxis = 18;

// Quantiles of the values of a metric within the columns shown; what is above the highest is drawn alike.
function scaleOf(grid: StepGrid, metric: Metric, [from, last]: [number, number], warmup: number): [number, number] {
  // The warm-up may be a hundred times as long, and would make everything else pale.
  const first = Math.max(from, Math.min(last, Math.ceil(warmup / grid.stepsPerColumn)));
  const values: number[] = [];
  const cells = metric === 'caused' ? grid.caused : grid.total;
  const stride = Math.max(1, Math.floor(grid.rows * (last - first + 1) / 20000));
  let i = 0;
  for (let row = 0; row < grid.rows; ++row) {
    for (let column = first; column <= last; ++column) {
      if (i++ % stride !== 0) continue;
      const value = cells[grid.at(row, column)];
      if (!Number.isNaN(value)) values.push(value);
    }
  }
  values.sort((a, b) => a - b);
  if (values.length === 0) return [0, 1];
  const quantile = (share: number): number => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  if (metric === 'total') {
    const low = quantile(0.02);
    return [low * 0.98, Math.max(quantile(0.995), low * 1.1)];
  }
  // A share of the step, so that noise stays pale: at least a tenth.
  const total: number[] = [];
  for (let column = first; column <= last; ++column) {
    const value = grid.total[grid.at(0, column)];
    if (!Number.isNaN(value)) total.push(value);
  }
  const step = total.sort((a, b) => a - b)[Math.floor(total.length / 2)] ?? 1;
  return [0, Math.max(quantile(0.999) * 0.9, step * 0.1)];
}

// What the viewer has set: the metric (null: the usual one), and the first and the last rank shown (null: all).
interface View { metric: Metric | null; ranks: [string, string] | null }

class HeatMap {
  private readonly view: View;
  private readonly grid: StepGrid;
  private readonly canvas = h('canvas', {role: 'img'});
  private readonly frame = h('div', {class: 'plot', tabindex: 0, role: 'group', 'aria-label':
      'Heat map. Arrow keys move from cell to cell, Enter selects the rank and shows the step.'});
  private readonly key = h('p', {class: 'legend'});
  private readonly redraw: () => void;
  private width = 0;
  private height = 0;

  constructor(private readonly data: Data, private readonly store: Store, controls: HTMLElement, body: HTMLElement) {
    this.grid = data.grid!;
    this.view = store.settings.of<View>('heat map', {metric: null, ranks: null});
    const metrics: [string, string][] = [['caused', kMetricWords.caused], ['total', kMetricWords.total]];
    controls.append(select('Colour', metrics, this.metric(), value => {
      this.view.metric = value as Metric;
      this.redraw();
    }));
    if (this.grid.rows > 32) {
      controls.append(button('Fewer ranks', () => this.zoomRows(0.5), 'Zoom in on ranks'),
                      button('All ranks', () => { this.view.ranks = null; this.redraw(); }));
    }
    controls.append(saveButton(this.frame, 'ranks-by-steps'));
    this.frame.append(this.canvas);
    body.append(this.key, this.frame);
    this.redraw = responsive(this.frame, width => this.draw(width));
    this.listen();
    store.follow((_, changed) => {
      if (changed.has('ranks')) this.reveal();
      if (changed.has('steps') || changed.has('ranks') || changed.has('cursor')) this.redraw();
    });
  }

  // The usual one: who was waited for, if anybody was.
  private metric(): Metric { return this.view.metric ?? (this.grid.caused.some(ns => ns > 0) && this.grid.rows > 1 ? 'caused' : 'total'); }
  private rows(): [number, number] {
    const [from, to] = this.view.ranks?.map(key => this.data.rowOfKey(key)) ?? [-1, -1];
    return from < 0 || to < from ? [0, this.grid.rows - 1] : [from, to];
  }
  private columns(): [number, number] { return this.grid.columnsOf(this.store.value.steps); }
  // All steps are drawn; what is selected is framed, unless it is most of them or few enough to zoom in on.
  private value(row: number, column: number): number {
    const i = this.grid.at(row, column);
    return this.metric() === 'caused' ? this.grid.caused[i] : this.grid.total[i];
  }

  private zoomRows(factor: number): void {
    const chosen = [...this.store.value.ranks];
    const rows = this.rows();
    const blamed = this.data.report.ranks.findIndex((_, row) => row >= rows[0] && row <= rows[1] && this.data.blames(row));
    const middle = this.store.value.cursor?.row ?? chosen[0] ?? (blamed >= 0 ? blamed : (rows[0] + rows[1]) / 2);
    const size = Math.max(16, Math.round((rows[1] - rows[0] + 1) * factor));
    const from = Math.max(0, Math.min(this.grid.rows - size, Math.round(middle - size / 2)));
    this.view.ranks = [this.data.key(from), this.data.key(Math.min(this.grid.rows - 1, from + size - 1))];
    this.redraw();
  }
  private reveal(): void {
    const [first, last] = this.rows();
    if ([...this.store.value.ranks].some(row => row < first || row > last)) this.view.ranks = null;
  }

  private shown(): number {
    const [first, last] = this.rows();
    return last - first + 1;
  }
  private rowHeight(): number {
    const shown = this.shown();
    return shown <= 16 ? Math.max(18, Math.min(34, Math.floor(280 / shown))) : shown <= 32 ? 12 : Math.max(Math.min(360 / shown, 12), 0.05);
  }

  private draw(width: number): void {
    const ratio = devicePixelRatio || 1;
    this.width = width;
    this.height = Math.round(this.rowHeight() * this.shown());
    this.canvas.width = width * ratio;
    this.canvas.height = (this.height + kAxis) * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.height + kAxis}px`;
    const context = this.canvas.getContext('2d')!;
    const columns = this.columns();
    const range = scaleOf(this.grid, this.metric(), columns, this.data.report.steps?.warmup_count ?? 0);
    const image = this.paint(columns, range);
    context.imageSmoothingEnabled = false;
    context.drawImage(image, kLeft * ratio, 0, (width - kLeft) * ratio, this.height * ratio);
    context.scale(ratio, ratio);
    this.drawLabels(context, columns);
    this.describe(range);
  }

  // One pixel for each cell, or for each group of rows that share a pixel row.
  private paint(columns: [number, number], [low, high]: [number, number]): HTMLCanvasElement {
    const shown = this.shown();
    const [first] = this.rows();
    const lines = Math.min(shown, Math.max(this.height, 1));
    const across = columns[1] - columns[0] + 1;
    const image = document.createElement('canvas');
    image.width = across;
    image.height = lines;
    const context = image.getContext('2d')!;
    const pixels = context.createImageData(across, lines);
    const paper = rgb('paper');
    const red = rgb(this.metric() === 'caused' ? 'late' : 'ink');
    const quiet = rgb(this.metric() === 'caused' ? 'soft' : 'ink');  // of a rank that no finding names
    const none = rgb('panel');
    for (let line = 0; line < lines; ++line) {
      const from = first + Math.floor(line * shown / lines);
      const to = Math.max(from + 1, first + Math.floor((line + 1) * shown / lines));
      for (let i = 0; i < across; ++i) {
        let most = NaN;
        let whose = from;
        for (let row = from; row < to; ++row) {
          const value = this.value(row, columns[0] + i);
          if (value <= most || Number.isNaN(value)) continue;
          most = value;
          whose = row;
        }
        const full = this.data.blames(whose) ? red : quiet;
        const share = Math.max(0, Math.min(1, (most - low) / (high - low || 1)));
        const at = (line * across + i) * 4;
        for (let c = 0; c < 3; ++c)
          pixels.data[at + c] = Number.isNaN(most) ? none[c] : paper[c] + (full[c] - paper[c]) * (0.04 + 0.96 * share);
        pixels.data[at + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
    return image;
  }

  private drawLabels(context: CanvasRenderingContext2D, columns: [number, number]): void {
    const each = this.rowHeight();
    const [first, last] = this.rows();
    const {ranks, cursor} = this.store.value;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const stride = Math.max(1, Math.ceil(13 / each));
    for (let row = first; row <= last; ++row) {
      const chosen = ranks.has(row);
      const y = (row - first) * each;
      if (!chosen && (row - first) % stride !== 0) continue;
      context.fillStyle = colour(chosen ? 'ink' : 'soft');
      context.font = `${chosen ? 'bold ' : ''}11px system-ui, sans-serif`;
      context.textAlign = 'right';
      if (chosen || ![...ranks].some(other => Math.abs(other - row) * each < 12))
        context.fillText(`${chosen ? '▸ ' : ''}${this.data.shortName(row)}`, kLeft - 6, y + Math.max(each / 2, 1));
      if (!chosen) continue;
      context.strokeStyle = colour('select');
      context.lineWidth = 1;
      context.strokeRect(kLeft + 0.5, y + 0.5, this.width - kLeft - 1, Math.max(each - 1, 2));
    }
    context.textAlign = 'left';
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = colour('soft');
    context.fillText(this.grid.name(columns[0]), kLeft, this.height + 10);
    context.textAlign = 'right';
    context.fillText(this.grid.name(columns[1]), this.width, this.height + 10);
    if (cursor === null || cursor.column < columns[0] || cursor.column > columns[1] || cursor.row < first || cursor.row > last) return;
    const wide = (this.width - kLeft) / (columns[1] - columns[0] + 1);
    context.strokeStyle = colour('select');
    context.lineWidth = 2;
    context.strokeRect(kLeft + (cursor.column - columns[0]) * wide - 1, (cursor.row - first) * each - 1,
                       Math.max(wide, 3) + 2, Math.max(each, 3) + 2);
  }

  private describe([low, high]: [number, number]): void {
    const blames = this.metric() === 'caused' && this.data.report.ranks.some((_, row) => this.data.blames(row));
    const css = blames ? 'ramp late-ramp' : this.metric() === 'caused' ? 'ramp soft-ramp' : 'ramp ink-ramp';
    this.key.replaceChildren(
        h('span', {}, `${kMetricWords[this.metric()]} `, duration(low), h('i', {class: css}), `${duration(high)} or more`),
        blames ? h('span', {}, h('i', {class: 'ramp soft-ramp'}), 'of ranks that no finding names') : '',
        h('span', {}, h('i', {class: 'none'}), 'not recorded'));
    this.canvas.setAttribute('aria-label', `${kMetricWords[this.metric()]} of ${this.grid.rows} ranks in ${this.grid.columns} columns of steps`);
  }

  private cellAt(event: MouseEvent): {row: number; column: number} | null {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - kLeft;
    const y = event.clientY - box.top;
    const columns = this.columns();
    const [top, bottom] = this.rows();
    const shown = this.shown();
    if (x < 0 || y < 0 || y >= this.height) return null;
    const column = columns[0] + Math.floor(x / (this.width - kLeft) * (columns[1] - columns[0] + 1));
    // Where rows share a pixel: the one that gave it its colour.
    const first = top + Math.floor(y / this.height * shown);
    const last = Math.max(first + 1, top + Math.floor((y + 1) / this.height * shown));
    let row = first;
    for (let other = first; other < last && other <= bottom; ++other) {
      if (this.value(other, column) > this.value(row, column)) row = other;
    }
    return {row: Math.min(row, bottom), column: Math.min(column, columns[1])};
  }

  private words({row, column}: {row: number; column: number}): string[] {
    const i = this.grid.at(row, column);
    const total = this.grid.total[i];
    if (Number.isNaN(total)) return [`${this.data.rankName(row)}, ${this.grid.name(column)}`, 'not recorded'];
    return [`${this.data.rankName(row)} (${this.data.place(row)}), ${this.grid.name(column)}`, `step time ${duration(total)}`,
            `made each other rank wait ${duration(this.grid.caused[i])} in collectives, beside compute or not`,
            `compute ${duration(this.grid.compute[i])}, exposed communication ${duration(this.grid.exposed[i])}`];
  }

  private choose({row, column}: {row: number; column: number}): void {
    const step = this.grid.stepOf(column);
    let best = this.store.value.timeline;
    this.data.timelines.forEach((timeline, i) => {
      if (Math.abs(timeline.step - step) < Math.abs((this.data.timelines[best]?.step ?? Infinity) - step)) best = i;
    });
    this.store.set({ranks: new Set([row]), cursor: {row, column}, timeline: best});
    announce(this.words({row, column}).join('; '));
  }

  private listen(): void {
    this.canvas.addEventListener('mousemove', event => {
      const cell = this.cellAt(event);
      if (cell === null) return hideTooltip();
      showTooltip(event.clientX, event.clientY, this.words(cell));
    });
    this.canvas.addEventListener('mouseleave', hideTooltip);
    this.canvas.addEventListener('click', event => {
      const cell = this.cellAt(event);
      if (cell !== null) this.choose(cell);
    });
    this.frame.addEventListener('keydown', event => {
      const moves: Record<string, [number, number]> = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
      const columns = this.columns();
      const [first, last] = this.rows();
      const cursor = this.store.value.cursor ?? {row: first, column: columns[0]};
      if (event.key in moves) {
        const [down, right] = moves[event.key].map(by => by * (event.shiftKey ? 10 : 1));
        const cell = {row: Math.max(first, Math.min(last, cursor.row + down)),
                      column: Math.max(columns[0], Math.min(columns[1], cursor.column + right))};
        this.store.set({cursor: cell});
        announce(this.words(cell).join('; '));
      } else if (event.key === 'Enter') {
        this.choose(cursor);
      } else {
        return;
      }
      event.preventDefault();
    });
  }
}

export function heatMap(data: Data, store: Store): HTMLElement | null {
  if (data.grid === null) return null;
  const {root, controls, body} = section('ranks-by-steps', 'Ranks by steps', 'One row a rank, one column a step. Click a cell to select its rank.');
  new HeatMap(data, store, controls, body);
  return root;
}
