// What is selected, and who wants to know: charts never call each other, they follow this.

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
  private listeners: Listener[] = [];

  follow(listener: Listener): void { this.listeners.push(listener); }
  set(change: Partial<Selection>): void {
    Object.assign(this.value, change);
    const changed = new Set(Object.keys(change) as (keyof Selection)[]);
    for (const listener of this.listeners) listener(this.value, changed);
  }
}
