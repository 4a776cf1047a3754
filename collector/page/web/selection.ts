// What is selected, and who wants to know: charts never call each other, they follow this.

import {Data} from './data';

export interface Selection {
  finding: number | null;  // place in report.findings
  ranks: Set<number>;  // rows
  columns: [number, number] | null;  // of the grid, both inclusive; null: all
  cursor: {row: number; column: number} | null;  // the cell under the keyboard or the mouse
  timeline: number;  // place in data.timelines
}

type Listener = (selection: Selection, changed: Set<keyof Selection>) => void;

export class Store {
  readonly value: Selection = {finding: null, ranks: new Set(), columns: null, cursor: null, timeline: 0};
  built = false;  // a timeline was shown before
  private listeners: Listener[] = [];

  follow(listener: Listener): void { this.listeners.push(listener); }
  forgetListeners(): void { this.listeners = []; }
  // The page has newer data: the same ranks, steps, finding and timeline stay selected, wherever they are now.
  carry(from: Data, to: Data): void {
    const rowOf = (row: number): number => {
      const {host, pid} = from.report.ranks[row];
      return to.report.ranks.findIndex(rank => rank.host === host && rank.pid === pid);
    };
    const columnOf = (column: number): number => to.grid!.columnOf(from.grid!.stepOf(column));
    const {value} = this;
    const id = value.finding === null ? null : from.report.findings[value.finding].id;
    const finding = to.report.findings.findIndex(other => other.id === id);
    value.finding = finding < 0 ? null : finding;
    value.ranks = new Set([...value.ranks].map(rowOf).filter(row => row >= 0));
    const grids = from.grid !== null && to.grid !== null;
    value.columns = value.columns === null || !grids ? null : [columnOf(value.columns[0]), columnOf(value.columns[1])];
    const row = value.cursor === null ? -1 : rowOf(value.cursor.row);
    value.cursor = value.cursor === null || !grids || row < 0 ? null : {row, column: columnOf(value.cursor.column)};
    const step = from.timelines[value.timeline]?.step;
    value.timeline = Math.max(0, to.timelines.findIndex(timeline => timeline.step === step));
  }
  set(change: Partial<Selection>): void {
    Object.assign(this.value, change);
    const changed = new Set(Object.keys(change) as (keyof Selection)[]);
    for (const listener of this.listeners) listener(this.value, changed);
  }
}
