// The selection and its listeners: charts never call each other, they follow this.

import {Data, Timeline} from './data';
import {Settings} from './settings';

export interface Selection {
  finding: number | null;  // place in report.findings
  ranks: Set<number>;  // rows
  steps: [number, number] | null;  // the first and the last; null: all
  cursor: {row: number; column: number} | null;  // the cell under the keyboard or the mouse
  timeline: number;  // place in data.timelines
}

type Listener = (selection: Selection, changed: Set<keyof Selection>) => void;

// The timeline that is shown until the viewer chooses one: that of the first finding.
function tellingTimeline(data: Data): number {
  const first = Math.min(...data.timelines.flatMap(({findings}) => findings));
  return Math.max(0, data.timelines.findIndex(({findings}) => findings.includes(first)));
}

// `timeline` of `from` as one of `to`, which lacks it: names and rows have other places there.
function adopted(timeline: Timeline, from: Data, to: Data): Timeline {
  const names = new Map(to.names.map((name, i) => [name, i]));
  const nameOf = (name: string): number => {
    if (!names.has(name)) names.set(name, to.names.push(name) - 1);
    return names.get(name)!;
  };
  const ranks = timeline.ranks.map(rank => ({
    ...rank, row: to.rowOfKey(from.key(rank.row)), slices: {...rank.slices, name: rank.slices.name.map(name => nameOf(from.names[name])), comm: rank.slices.comm.map(comm => comm === 0 ? 0 : nameOf(from.names[comm - 1]) + 1)}}));
  return {...timeline, slowest: false, median: false, findings: [], column: to.grid?.columnOf(timeline.step) ?? 0, ranks: ranks.filter(rank => rank.row >= 0)};
}

export class Store {
  readonly value: Selection = {finding: null, ranks: new Set(), steps: null, cursor: null, timeline: 0};
  readonly settings = new Settings();
  private timelineChosen = false;
  wantedStep: number | null = null;  // whose timeline is on its way
  private listeners: Listener[] = [];

  get chosenTimeline(): number | null { return this.timelineChosen ? this.value.timeline : null; }
  follow(listener: Listener): void { this.listeners.push(listener); }
  forgetListeners(): void { this.listeners = []; }
  // The viewer looks at the timeline that is shown: newer data must not take it away.
  holdTimeline(): void { this.timelineChosen = true; }

  // The viewer asked for the timeline of this step: it is shown when it is there.
  want(step: number): void { this.wantedStep = step; }

  begin(data: Data): void { this.value.timeline = tellingTimeline(data); }
  // The page has newer data: the same ranks, steps, finding and timeline stay selected, wherever they are now.
  carry(from: Data, to: Data): void {
    const rowOf = (row: number): number => to.rowOfKey(from.key(row));
    const {value} = this;
    const id = value.finding === null ? null : from.report.findings[value.finding].id;
    const finding = to.report.findings.findIndex(other => other.id === id);
    value.finding = finding < 0 ? null : finding;
    value.ranks = new Set([...value.ranks].map(rowOf).filter(row => row >= 0));
    const row = value.cursor === null ? -1 : rowOf(value.cursor.row);
    value.cursor = value.cursor === null || row < 0 || !from.grid || !to.grid ? null : {row, column: to.grid.columnOf(from.grid.stepOf(value.cursor.column))};
    value.timeline = this.carryTimeline(from, to);
  }
  set(change: Partial<Selection>): void {
    Object.assign(this.value, change);
    if (change.timeline !== undefined) this.holdTimeline();
    const changed = new Set(Object.keys(change) as (keyof Selection)[]);
    for (const listener of this.listeners) listener(this.value, changed);
  }

  private carryTimeline(from: Data, to: Data): number {
    const column = this.wantedStep === null || to.grid === null ? -1 : to.grid.columnOf(this.wantedStep);
    const wanted = column < 0 ? -1 : to.timelines.findIndex(timeline => timeline.column === column);
    if (wanted >= 0) {
      this.wantedStep = null;
      this.holdTimeline();
      return wanted;
    }
    const held = this.timelineChosen ? from.timelines[this.value.timeline] : undefined;
    if (held === undefined) return tellingTimeline(to);
    const place = to.timelines.findIndex(timeline => timeline.step === held.step);
    return place >= 0 ? place : to.timelines.push(adopted(held, from, to)) - 1;
  }
}
