// Kernels and collectives of every rank by columns of steps: sums over the ranks and steps that are selected.
import type {StepGrid} from './data';
import {unpack} from './packed';

export interface RawWorkEntry {
  place: number; calls_per_step?: number; calls?: string; time_ns: string; transfer_ns?: string;
  phases?: Record<string, {calls: number; time_ns: number}>;
}
export interface RawWork {
  steps_per_column: number; columns: number; steps: string; kernels: RawWorkEntry[]; collectives: RawWorkEntry[];
}

// One kernel, or collectives of one kind.
export interface Work {
  phases: Record<string, {calls: number; time_ns: number}>;
  calls(cell: number): number;
  mean_ns: Float32Array;  // of a call; NaN: none
  transfer_ns: Float32Array | null;  // of a call, without waiting
}

// `steps`: of all ranks together, whether they have such a call or not.
export interface WorkSum { steps: number; calls: number; time_ns: number; transfer_ns: number | null }

export class WorkGrid {
  readonly columns: number;
  readonly stepsPerColumn: number;
  readonly kernels = new Map<number, Work>();  // by place in report.top_kernels
  readonly collectives = new Map<number, Work>();  // by place in report.collectives
  private readonly steps: Float32Array;

  constructor(raw: RawWork, private readonly grid: StepGrid) {
    this.columns = raw.columns;
    this.stepsPerColumn = raw.steps_per_column;
    this.steps = unpack(raw.steps);
    for (const entry of raw.kernels) this.kernels.set(entry.place, this.entry(entry));
    for (const entry of raw.collectives) this.collectives.set(entry.place, this.entry(entry));
  }

  stepOf(column: number): number { return this.grid.first + column * this.stepsPerColumn; }
  lastStepOf(column: number): number { return Math.min(this.stepOf(column + 1), this.grid.lastStepOf(this.grid.columns - 1) + 1) - 1; }
  // Those that hold any of the steps.
  columnsOf(steps: [number, number] | null): [number, number] {
    const of = (step: number): number => Math.max(0, Math.min(this.columns - 1, Math.floor((step - this.grid.first) / this.stepsPerColumn)));
    return steps === null ? [0, this.columns - 1] : [of(steps[0]), of(steps[1])];
  }
  // Without the warm-up, as in the table of where a step goes; null: no step is complete.
  sumOf(work: Work, rows: Set<number>, steps: [number, number] | null, warmup: number): WorkSum | null {
    const sum = {steps: 0, calls: 0, time_ns: 0};
    let transfers = 0, transfer_ns = 0;
    const [first, last] = this.columnsOf(steps);
    for (let row = 0; row < this.grid.rows; ++row) {
      if (rows.size > 0 && !rows.has(row)) continue;
      for (let column = first; column <= last; ++column) {
        if (this.stepOf(column) < warmup) continue;
        const cell = row * this.columns + column;
        sum.steps += this.steps[cell];
        const mean = work.mean_ns[cell];
        if (Number.isNaN(mean)) continue;
        const calls = work.calls(cell);
        sum.calls += calls;
        sum.time_ns += calls * mean;
        const transfer = work.transfer_ns?.[cell] ?? NaN;
        if (Number.isNaN(transfer)) continue;
        transfers += calls;
        transfer_ns += calls * transfer;
      }
    }
    return sum.steps === 0 ? null : {...sum, transfer_ns: transfers > 0 ? transfer_ns / transfers : null};
  }

  // Of a step and rank of a column, on these rows (none: all of them); null: no step is complete.
  meanOfStep(work: Work, rows: Set<number>, column: number): number | null {
    let steps = 0, ns = 0;
    for (let row = 0; row < this.grid.rows; ++row) {
      if (rows.size > 0 && !rows.has(row)) continue;
      const cell = row * this.columns + column;
      steps += this.steps[cell]!;
      const mean = work.mean_ns[cell]!;
      if (!Number.isNaN(mean)) ns += mean * work.calls(cell);
    }
    return steps === 0 ? null : ns / steps;
  }

  private entry(raw: RawWorkEntry): Work {
    const calls = raw.calls === undefined ? null : unpack(raw.calls);
    return {
      phases: raw.phases ?? {}, mean_ns: unpack(raw.time_ns), transfer_ns: raw.transfer_ns === undefined ? null : unpack(raw.transfer_ns),
      calls: cell => calls === null ? raw.calls_per_step! * this.steps[cell] : calls[cell]};
  }
}
