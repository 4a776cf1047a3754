// The canvas of a timeline: ranks below each other, each with its tracks, zoomed and panned along time.
import {scaleLinear} from 'd3-scale';
import {event as d3event, select as d3select} from 'd3-selection';
import {zoom, zoomIdentity} from 'd3-zoom';
import {Colour, colour} from './colours';
import {Data, Timeline} from './data';
import {h, responsive} from './dom';
import {Store} from './selection';
import {announce, hideTooltip, showTooltip} from './tooltip';
import {duration, percent, plural, shortFile} from './units';

const kKinds: {words: string; colour: Colour}[] = [
  {words: 'compute', colour: 'compute'}, {words: 'communication', colour: 'comm'}, {words: 'copy', colour: 'copy'}, {words: 'range', colour: 'range'}];
const kLeft = 64;
const kAxis = 20;
const kGap = 7;  // between ranks
const kBand = 3;  // height of what samples found the host in
const kMostLines = 14;  // of a stack in a tooltip
const kMostTracks = 6;
const kFaded = 0.18;  // opacity of what a search does not find
const kFoundPart = 12;  // what was found is shown with so many times its length

// What the viewer has set: where the picture of `step` is zoomed to.
interface View { step: number | null; transform: any; reading: number; search: string; found: number }

interface Lane { rank: number; track: number; y: number; height: number }  // rank: place in timeline.ranks

interface Part { rank: number; track: number; start_ns: number; end_ns: number }
interface Wait { last: Part; waiters: Part[] }

// Calls that some rank entered much later than others. A call that was replayed within the step is left out: its parts have one number.
export function waitsOf(timeline: Timeline): Wait[] {
  const calls = new Map<string, Part[]>();
  timeline.ranks.forEach(({slices}, rank) => slices.track.forEach((track, i) => {
    if (slices.kind[i] !== 1 || slices.comm[i] === 0 || slices.count[i] > 1) return;
    const key = `${slices.comm[i]} ${slices.seq[i]}`;
    if (!calls.has(key)) calls.set(key, []);
    calls.get(key)!.push({rank, track, start_ns: slices.start_ns[i], end_ns: slices.start_ns[i] + slices.length_ns[i]});
  }));
  const waits: Wait[] = [];
  for (const parts of calls.values()) {
    if (new Set(parts.map(part => part.rank)).size < parts.length) continue;
    const last = parts.reduce((a, b) => b.start_ns > a.start_ns ? b : a);
    const waiters = parts.filter(part => part.rank !== last.rank && last.start_ns - part.start_ns > timeline.length_ns / 50 && part.end_ns > last.start_ns);
    if (waiters.length > 0) waits.push({last, waiters});
  }
  return waits;
}

export class TimelineView {
  readonly frame = h('div', {class: 'plot', tabindex: 0, role: 'group', 'aria-label':
      'Timeline. Left and right arrows pan, plus and minus zoom, 0 shows the whole step, up and down read the ranks.'});
  private readonly canvas = h('canvas', {role: 'img'});
  private readonly redraw: () => void;
  private readonly behaviour = zoom().scaleExtent([1, 2000]).filter(() => d3event.type !== 'wheel' || d3event.ctrlKey || d3event.metaKey)
      .on('zoom', () => this.zoomed());
  private readonly view: View;
  private width = 0;
  private lanes: Lane[] = [];

  constructor(private readonly data: Data, private readonly store: Store) {
    this.view = store.settings.of<View>('timeline', {step: null, transform: zoomIdentity, reading: -1, search: '', found: -1});
    this.frame.append(this.canvas);
    this.redraw = responsive(this.frame, width => this.draw(width));
    // Before d3-zoom's own, which zooms in.
    this.canvas.addEventListener('dblclick', event => {
      event.stopImmediatePropagation();
      this.reset();
    });
    d3select(this.canvas).call(this.behaviour);
    d3select(this.canvas).call(this.behaviour.transform, this.view.step === this.timeline().step ? this.view.transform : zoomIdentity);
    this.canvas.addEventListener('mousemove', event => this.point(event));
    this.canvas.addEventListener('mouseleave', hideTooltip);
    this.frame.addEventListener('keydown', event => this.press(event));
    store.follow((_, changed) => {
      if (changed.has('timeline')) this.reset();
      if (changed.has('ranks')) this.redraw();
    });
  }

  legend(): HTMLElement {
    return h('p', {class: 'legend'}, ...kKinds.map(kind => h('span', {}, h('i', {class: kind.colour}), kind.words)),
             h('span', {}, h('i', {class: 'idle'}), 'nothing runs'),
             this.data.timelines.some(t => waitsOf(t).length > 0) ? h('span', {}, h('i', {class: 'arrow'}, '↓'), 'from the last rank in a call to those that waited for it') : null,
             this.data.timelines.some(t => t.ranks.some(rank => rank.host.start_ns.length > 0)) ?
                 h('span', {}, h('i', {class: 'host'}), 'what the host was in, by samples') : null);
  }
  zoomBy(k: number): void { d3select(this.canvas).call(this.behaviour.scaleBy, k); }
  reset(): void { d3select(this.canvas).call(this.behaviour.transform, zoomIdentity); this.redraw(); }

  private zoomed(): void {
    this.view.transform = d3event.transform;
    this.view.step = this.timeline().step;
    if (d3event.transform.k !== 1) this.store.holdTimeline();
    this.redraw();
  }

  // Fades what does not have the words in its name, and says how much does. Empty: nothing is searched.
  search(words: string): string {
    this.view.search = words.toLowerCase();
    this.view.found = -1;
    this.redraw();
    if (words === '') return '';
    const found = this.found();
    const ns = found.reduce((sum, {rank, i}) => sum + this.timeline().ranks[rank]!.slices.length_ns[i]!, 0);
    return found.length === 0 ? 'Nothing in this step has such a name.' : `${plural(found.length, 'match', 'matches')} on all ranks, ${duration(ns)} together. Enter shows the next.`;
  }
  get searched(): string { return this.view.search; }

  // Zooms to the next one that was found.
  next(): string {
    const found = this.found();
    if (found.length === 0) return '';
    this.view.found = (this.view.found + 1) % found.length;
    const {rank, i} = found[this.view.found]!;
    const timeline = this.timeline();
    const {slices, row} = timeline.ranks[rank]!;
    const [start, length] = [slices.start_ns[i]!, slices.length_ns[i]!];
    const whole = scaleLinear([-timeline.length_ns / 50, timeline.length_ns * 1.02], [kLeft, this.width]);
    const k = Math.max(1, Math.min(2000, timeline.length_ns / (kFoundPart * Math.max(length, 1))));
    d3select(this.canvas).call(this.behaviour.transform, zoomIdentity.translate((kLeft + this.width) / 2 - k * whole(start + length / 2), 0).scale(k));
    return `${this.view.found + 1} of ${found.length}: ${this.data.rankName(row)}, ${this.data.names[slices.name[i]!]}, ${duration(length)}`;
  }

  // In the order of time.
  private found(): {rank: number; i: number}[] {
    const out: {rank: number; i: number; start: number}[] = [];
    this.timeline().ranks.forEach(({slices}, rank) => slices.name.forEach((name, i) => {
      if (this.isFound(name)) out.push({rank, i, start: slices.start_ns[i]!});
    }));
    return out.sort((a, b) => a.start - b.start || a.rank - b.rank);
  }
  private isFound(name: number): boolean { return this.data.names[name]!.toLowerCase().includes(this.view.search); }

  private timeline(): Timeline { return this.data.timelines[this.store.value.timeline]; }

  private layOut(timeline: Timeline): number {
    this.lanes = [];
    let y = 2;
    const many = timeline.ranks.length > 8;
    timeline.ranks.forEach((rank, i) => {
      const tracks = rank.tracks.slice(0, kMostTracks);
      if (tracks.length === 0) this.lanes.push({rank: i, track: -1, y, height: 12});
      tracks.forEach((track, t) => {
        const height = track.ranges || many ? 11 : 13;
        this.lanes.push({rank: i, track: t, y, height});
        y += height + 1;
      });
      y += tracks.length === 0 ? 13 + kGap : kGap;
    });
    return y;
  }

  private time(): any {
    const timeline = this.timeline();
    const margin = timeline.length_ns / 50;
    return this.view.transform.rescaleX(scaleLinear([-margin, timeline.length_ns + margin], [kLeft, this.width]));
  }

  private draw(width: number): void {
    const timeline = this.timeline();
    this.width = width;
    this.behaviour.extent([[kLeft, 0], [width, 1]]).translateExtent([[kLeft, 0], [width, 1]]);
    const height = this.layOut(timeline);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = (height + kAxis) * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height + kAxis}px`;
    this.canvas.setAttribute('aria-label', `Timeline of step ${timeline.step} on ${timeline.ranks.length} ranks, ${duration(timeline.length_ns)}`);
    const context = this.canvas.getContext('2d')!;
    context.scale(ratio, ratio);
    const x = this.time();
    context.save();
    context.beginPath();
    context.rect(kLeft, 0, width - kLeft, height);
    context.clip();
    for (const lane of this.lanes) this.drawLane(context, lane, x);
    this.drawWaits(context, x);
    context.restore();
    this.drawLabels(context);
    this.drawAxis(context, x, height);
  }

  private drawLane(context: CanvasRenderingContext2D, lane: Lane, x: (ns: number) => number): void {
    const rank = this.timeline().ranks[lane.rank];
    context.fillStyle = colour('panel');
    context.fillRect(kLeft, lane.y, this.width - kLeft, lane.height);
    if (lane.track < 0) return;
    const ranges = rank.tracks[lane.track].ranges;
    if (!ranges && rank.step_start_ns !== null) {
      context.fillStyle = colour('idle');
      context.fillRect(x(rank.step_start_ns), lane.y, x(rank.step_end_ns!) - x(rank.step_start_ns), lane.height);
    }
    const {slices} = rank;
    context.font = '10px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    for (let i = 0; i < slices.track.length; ++i) {
      if (slices.track[i] !== lane.track) continue;
      const left = x(slices.start_ns[i]);
      const right = x(slices.start_ns[i] + slices.length_ns[i]);
      if (right < kLeft || left > this.width) continue;
      const wide = Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.5);
      context.globalAlpha = this.view.search === '' || this.isFound(slices.name[i]!) ? 1 : kFaded;
      context.fillStyle = colour(kKinds[slices.kind[i]].colour);
      context.fillRect(left, lane.y, wide, lane.height);
      const visible = Math.min(right, this.width) - Math.max(left, kLeft);
      if (visible > 46 && lane.height >= 11) this.label(context, Math.max(left, kLeft) + 3, lane, visible - 6, i, ranges);
    }
    context.globalAlpha = 1;
    if (!ranges && (lane.track === 0 || rank.tracks[lane.track - 1].ranges)) this.drawHost(context, lane, x);
  }

  // From the rank that came last to a collective to those that waited in it: where its part begins, for calls that waited for
  // a fiftieth of the step or longer.
  private drawWaits(context: CanvasRenderingContext2D, x: (ns: number) => number): void {
    const timeline = this.timeline();
    context.strokeStyle = context.fillStyle = colour('late');
    context.lineWidth = 1;
    for (const {last, waiters} of waitsOf(timeline)) {
      const at = x(last.start_ns);
      if (at < kLeft || at > this.width) continue;
      const from = this.laneOf(last.rank, last.track);
      for (const waiter of waiters) {
        const to = this.laneOf(waiter.rank, waiter.track);
        if (from === undefined || to === undefined) continue;
        const down = to.y > from.y;
        const [begin, end] = down ? [from.y + from.height, to.y] : [from.y, to.y + to.height];
        context.beginPath();
        context.moveTo(at, begin);
        context.lineTo(at, end);
        context.stroke();
        context.beginPath();
        context.moveTo(at, end);
        context.lineTo(at - 3, end + (down ? -4 : 4));
        context.lineTo(at + 3, end + (down ? -4 : 4));
        context.fill();
      }
    }
  }
  private laneOf(rank: number, track: number): Lane | undefined {
    return this.lanes.find(lane => lane.rank === rank && lane.track === track);
  }

  // A thin band along the lower edge of a rank's first stream, over stretches in which the host was sampled.
  private drawHost(context: CanvasRenderingContext2D, lane: Lane, x: (ns: number) => number): void {
    const {host} = this.timeline().ranks[lane.rank];
    context.fillStyle = colour('ink');
    let until = -1;  // stretches of several threads lie on each other
    for (let i = 0; i < host.start_ns.length; ++i) {
      const left = Math.max(x(host.start_ns[i]), until);
      const right = x(host.start_ns[i] + host.length_ns[i]);
      if (right < kLeft || left > this.width || right <= left) continue;
      context.fillRect(left, lane.y + lane.height - kBand, Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.5), kBand);
      until = right;
    }
  }

  // The host's stretches at that time, each with its details.
  private hostAt(rank: Timeline['ranks'][number], ns: number): string[] {
    const {host} = rank;
    const lines: string[] = [];
    for (let i = 0; i < host.start_ns.length; ++i) {
      if (ns < host.start_ns[i] || ns > host.start_ns[i] + host.length_ns[i]) continue;
      const details = this.data.names[host.details[i]].split('\n').filter(line => line !== '')
                          .map(line => line.replace(/^(.* \()([^()]*\))$/, (_, before, file) => before + shortFile(file)));
      lines.push(`host: ${this.data.names[host.name[i]]}, ${duration(host.length_ns[i])}, ${plural(host.samples[i], 'sample')} of ${this.data.names[host.thread[i]]}`,
                 ...details.slice(0, kMostLines).map(line => `  ${line}`),
                 ...(details.length > kMostLines ? [`  and ${details.length - kMostLines} more`] : []));
    }
    return lines;
  }

  private label(context: CanvasRenderingContext2D, x: number, lane: Lane, room: number, i: number, ranges: boolean): void {
    const {slices} = this.timeline().ranks[lane.rank];
    const most = Math.floor(room / 5.6);
    const name = this.short(this.data.names[slices.name[i]]);
    context.fillStyle = colour(ranges ? 'ink' : 'paper');
    context.fillText(name.length > most ? `${name.slice(0, most - 1)}…` : name, x, lane.y + lane.height / 2 + 0.5);
  }

  // A kernel's name without its parameters and namespaces.
  private short(name: string): string {
    return name.replace(/^void /, '').replace(/[(<].*$/, '').replace(/^.*::/, '') || name;
  }

  private drawLabels(context: CanvasRenderingContext2D): void {
    const timeline = this.timeline();
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    timeline.ranks.forEach((rank, i) => {
      const lanes = this.lanes.filter(lane => lane.rank === i);
      const middle = (lanes[0].y + lanes[lanes.length - 1].y + lanes[lanes.length - 1].height) / 2;
      const chosen = this.store.value.ranks.has(rank.row);
      context.fillStyle = colour(chosen ? 'late' : 'soft');
      context.font = `${chosen ? 'bold ' : ''}11px system-ui, sans-serif`;
      context.fillText(`${chosen ? '▸ ' : ''}${this.data.rankName(rank.row)}`, kLeft - 6, middle);
    });
  }

  private drawAxis(context: CanvasRenderingContext2D, x: any, height: number): void {
    context.fillStyle = colour('soft');
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'top';
    for (const tick of x.ticks(Math.max(2, Math.floor(this.width / 120)))) {
      if (x(tick) < kLeft) continue;
      context.textAlign = x(tick) > this.width - 30 ? 'right' : 'center';
      context.fillText(tick === 0 ? '0' : `${tick < 0 ? '-' : ''}${duration(Math.abs(tick))}`, x(tick), height + 3);
    }
  }

  private point(event: MouseEvent): void {
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top;
    const lane = this.lanes.find(other => y >= other.y && y <= other.y + other.height);
    const x = this.time();
    const ns = x.invert(event.clientX - box.left);
    if (lane === undefined || lane.track < 0 || event.clientX - box.left < kLeft) return hideTooltip();
    const rank = this.timeline().ranks[lane.rank];
    const {slices} = rank;
    const slack = 2 * (x.invert(1) - x.invert(0));
    let best = -1;
    for (let i = 0; i < slices.track.length; ++i) {
      if (slices.track[i] === lane.track && ns >= slices.start_ns[i] - slack && ns <= slices.start_ns[i] + slices.length_ns[i] + slack) best = i;
    }
    const where = `${this.data.rankName(rank.row)}, ${rank.tracks[lane.track].name}`;
    const host = rank.tracks[lane.track].ranges ? [] : this.hostAt(rank, ns);
    if (best < 0) return showTooltip(event.clientX, event.clientY, ['idle', ...host, where]);
    const joined = slices.count[best] > 1 ? [`${slices.count[best]} operations, most of it ${this.data.names[slices.name[best]]}`] : [this.data.names[slices.name[best]]];
    showTooltip(event.clientX, event.clientY, [
      ...joined, `${kKinds[slices.kind[best]].words}, ${duration(slices.length_ns[best])}, from ${duration(Math.max(0, slices.start_ns[best]))} on`,
      ...(slices.seq[best] > 0 ? [`call #${slices.seq[best]} of its communicator`] : []), ...host, where]);
  }

  private press(event: KeyboardEvent): void {
    const pan = 0.2 * (this.width - kLeft) / this.view.transform.k;
    const keys: Record<string, () => void> = {
      '+': () => this.zoomBy(2), '=': () => this.zoomBy(2), '-': () => this.zoomBy(0.5), '0': () => this.reset(),
      ArrowLeft: () => { d3select(this.canvas).call(this.behaviour.translateBy, pan, 0); },
      ArrowRight: () => { d3select(this.canvas).call(this.behaviour.translateBy, -pan, 0); },
      ArrowUp: () => this.read(-1), ArrowDown: () => this.read(1)};
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
  }

  // Says what a rank did in the step.
  private read(by: number): void {
    const timeline = this.timeline();
    this.view.reading = Math.max(0, Math.min(timeline.ranks.length - 1, this.view.reading + by));
    const rank = timeline.ranks[this.view.reading];
    const busy = [0, 0, 0];
    rank.slices.length_ns.forEach((ns, i) => { if (rank.slices.kind[i] < 3) busy[rank.slices.kind[i]] += ns; });
    const words = busy.map((ns, kind) => `${kKinds[kind].words} ${duration(ns)}, ${percent(ns / timeline.length_ns)}`);
    let most = -1;
    rank.host.length_ns.forEach((ns, i) => { if (most < 0 || ns > rank.host.length_ns[most]) most = i; });
    if (most >= 0) words.push(`host longest in ${this.data.names[rank.host.name[most]]}, ${duration(rank.host.length_ns[most])}`);
    announce(`${this.data.rankName(rank.row)}: ${words.join('; ')}`);
  }
}
