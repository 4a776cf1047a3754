// The two documents inside the page: report.json (docs/report-json.md) and the series (docs/internals/page-data.md).

import {unpack} from './packed';
import type {Kernel, PictureName, Report, Steps} from './report';
import {RawWork, WorkGrid} from './work';

export type {
  Collective, Communicator, Finding, Kernel, LinkModel, MemoryBySteps, MemoryLifetimes, Phase, PictureName, Report, Statistics, Steps, TracedRank,
  SummarisedGpuHealth as GpuHealth, SummarisedRank as Rank} from './report';

export interface RawSteps {
  first_step: number; steps_per_column: number; columns: number; rows: number; cells: Record<string, string>; incomplete_columns: number[];
}
interface RawPageData {
  steps: RawSteps | null;
  names: string[];
  timelines: Timeline[];
  memory: MemoryLevels[];
  pictures: (PictureName | '')[];
  documents: Record<string, string>;
  work?: RawWork | null;
  step_starts?: RawStepStarts[];
}
// When a rank's steps began: the first one, from the start of the run, and each column's from the one before.
interface RawStepStarts { row: number; first_ns: number; since_before_ns: string }
export interface Timeline {
  step: number; column: number; slowest: boolean; median: boolean; findings: number[]; start_ns: number; length_ns: number;
  ranks: {row: number; step_start_ns: number | null; step_end_ns: number | null;
          tracks: {name: string; ranges: boolean}[];
          slices: {track: number[]; start_ns: number[]; length_ns: number[]; name: number[]; kind: number[];
                   count: number[]; seq: number[]; comm: number[]};
          host: {start_ns: number[]; length_ns: number[]; thread: number[]; name: number[]; details: number[]; samples: number[]}}[];
}
export interface MemoryLevels {
  row: number; kind: string; device: number | null; start_ns: number; width_ns: number; greatest_bytes: number[]; least_bytes: number[];
}

export const kParts = ['compute_ns', 'exposed_comm_ns', 'copy_ns', 'idle_ns'] as const;
export type Part = typeof kParts[number];
// Why nothing ran, as the text report says it.
export const kIdleWords: Record<keyof Steps['idle'], string> = {
  host_bound_ns: 'host-bound', input_ns: 'input', sync_ns: 'sync', memory_ns: 'memory calls', pause_ns: 'pauses', launch_gap_ns: 'launch gaps', unknown_ns: 'unknown'};
export const kIdleParts = Object.keys(kIdleWords) as (keyof Steps['idle'])[];
export const kPartWords: Record<Part, string> = {
  compute_ns: 'compute', exposed_comm_ns: 'exposed communication', copy_ns: 'copies', idle_ns: 'idle'};
export const kPartClass: Record<Part, string> = {
  compute_ns: 'compute', exposed_comm_ns: 'comm', copy_ns: 'copy', idle_ns: 'idle'};

// Ranks x columns of steps. NaN: the rank has none there.
export class StepGrid {
  readonly total: Float32Array;
  readonly compute: Float32Array;
  readonly exposed: Float32Array;
  readonly copy: Float32Array;
  readonly caused: Float32Array;
  readonly first: number;
  readonly stepsPerColumn: number;
  readonly columns: number;
  readonly rows: number;
  readonly incomplete: Set<number>;

  constructor(raw: RawSteps) {
    this.first = raw.first_step;
    this.stepsPerColumn = raw.steps_per_column;
    this.columns = raw.columns;
    this.rows = raw.rows;
    this.incomplete = new Set(raw.incomplete_columns);
    this.total = unpack(raw.cells.total_ns);
    this.compute = unpack(raw.cells.compute_ns);
    this.exposed = unpack(raw.cells.exposed_comm_ns);
    this.copy = unpack(raw.cells.copy_ns);
    this.caused = unpack(raw.cells.caused_wait_ns);
  }
  at(row: number, column: number): number { return row * this.columns + column; }
  columnOf(step: number): number {
    return Math.max(0, Math.min(this.columns - 1, Math.floor((step - this.first) / this.stepsPerColumn)));
  }
  stepOf(column: number): number { return this.first + column * this.stepsPerColumn; }
  // Those that hold the steps from the first to the last; null: all.
  columnsOf(steps: [number, number] | null): [number, number] {
    return steps === null ? [0, this.columns - 1] : [this.columnOf(steps[0]), this.columnOf(steps[1])];
  }
  lastStepOf(column: number): number { return this.stepOf(column) + this.stepsPerColumn - 1; }
  // "step 41", "steps 40 to 43"
  name(column: number): string {
    const step = this.stepOf(column);
    return this.stepsPerColumn === 1 ? `step ${step}` : `steps ${step} to ${this.lastStepOf(column)}`;
  }
  // The mean step of these rows (none: all of them) within these steps, without the warm-up; null: there is none.
  meanOf(rows: Set<number>, steps: [number, number] | null, warmup: number): Record<Part, number> & {time_ns: number} | null {
    const sums = {compute_ns: 0, exposed_comm_ns: 0, copy_ns: 0, idle_ns: 0, time_ns: 0};
    let n = 0;
    const [first, last] = this.columnsOf(steps);
    for (let row = 0; row < this.rows; ++row) {
      if (rows.size > 0 && !rows.has(row)) continue;
      for (let column = first; column <= last; ++column) {
        const total = this.total[this.at(row, column)];
        if (Number.isNaN(total) || this.stepOf(column) < warmup) continue;
        ++n;
        sums.time_ns += total;
        for (const part of kParts) sums[part] += this.part(part, row, column);
      }
    }
    if (n === 0) return null;
    for (const key of [...kParts, 'time_ns'] as const) sums[key] /= n;
    return sums;
  }
  // How long the others waited for this row in the mean step, of the same steps.
  causedBy(row: number, steps: [number, number] | null, warmup: number): number | null {
    let sum = 0, n = 0;
    const [first, last] = this.columnsOf(steps);
    for (let column = first; column <= last; ++column) {
      const i = this.at(row, column);
      if (Number.isNaN(this.total[i]) || this.stepOf(column) < warmup) continue;
      ++n;
      sum += this.caused[i];
    }
    return n === 0 ? null : sum / n;
  }
  part(part: Part, row: number, column: number): number {
    const i = this.at(row, column);
    switch (part) {
      case 'compute_ns': return this.compute[i];
      case 'exposed_comm_ns': return this.exposed[i];
      case 'copy_ns': return this.copy[i];
      default: return Math.max(0, this.total[i] - this.compute[i] - this.exposed[i] - this.copy[i]);
    }
  }
}

export interface Data {
  version: string;  // of the documents; empty: of a page that is a file
  report: Report; grid: StepGrid | null; names: string[]; timelines: Timeline[]; memory: MemoryLevels[]; kernels: Kernel[];
  work: WorkGrid | null;
  stepStarts: Map<number, Float64Array>;  // by row: of each column, in ns from the start of the run; NaN: it has none there
  pictures: (PictureName | '')[];  // of the report's findings, by their places
  documents: Record<string, string>;  // of the report's findings, by their ids, in Markdown
  blames(row: number): boolean;  // a finding says that the others wait for the rank
  rankName(row: number): string;  // "rank 5", "pid 4711", "pid 4711/GPU 1"
  shortName(row: number): string;  // "5"
  place(row: number): string;  // "n1, GPU 5"
  rowOfName(name: string): number;  // -1: no rank has this short name
  rowOfRank(rank: number): number;  // -1: it did not report
  key(row: number): string;  // the rank's, whatever its row is in newer data
  rowOfKey(key: string): number;  // -1: there is none
}

function parse<T>(id: string): T { return JSON.parse(document.getElementById(id)!.textContent!); }

// Of a page that is a file: the documents are in it.
export function embedded(): Data { return dataOf(parse<Report>('report-data'), parse<RawPageData>('page-data'), ''); }

// Of a page that is served: both documents of one version, or null while there are none.
export async function fetched(): Promise<Data | null> {
  for (let tries = 0; tries < 3; ++tries) {
    const [report, page] = await Promise.all([fetch('/api/report'), fetch('/api/page-data')]);
    if (!report.ok || !page.ok) return null;
    const version = report.headers.get('ETag') ?? '';
    if (version === page.headers.get('ETag')) return dataOf(await report.json(), await page.json(), version);
  }
  return null;
}

function startsOf(raw: RawStepStarts): Float64Array {
  let at = raw.first_ns;
  return Float64Array.from(unpack(raw.since_before_ns), since => {
    if (!Number.isNaN(since)) at += since;
    return Number.isNaN(since) ? NaN : at;
  });
}

// Pictures of findings that name ranks for something else than that the others wait for them.
const kNotOfWaiting = new Set<PictureName | ''>(['memory', 'leak', 'reserved', 'idle_gpus', 'gpus', 'lifelines', 'coverage', 'overhead']);

function dataOf(report: Report, raw: RawPageData, version: string): Data {
  const rows = new Map<number, number>();
  const key = (row: number): string => `${report.ranks[row].host}/${report.ranks[row].pid}/${report.ranks[row].gpu}`;
  const rowsOfKeys = new Map(report.ranks.map((_, row) => [key(row), row]));
  report.ranks.forEach((rank, row) => { if (rank.rank !== null && !rows.has(rank.rank)) rows.set(rank.rank, row); });
  const duplicates = new Map(report.conditions.duplicate_ranks.flatMap(({rank, pids}) => pids.map(pid => [pid, rank] as const)));
  const gpuOf = (row: number): string => report.ranks[row].gpu === null ? '' : `/GPU ${report.ranks[row].gpu}`;
  const processOf = (row: number): string => duplicates.get(report.ranks[row].pid) === report.ranks[row].rank ? ` (pid ${report.ranks[row].pid})` : '';
  const shortName = (row: number): string => String(report.ranks[row].rank ?? report.ranks[row].pid) + gpuOf(row);
  const blamed = new Set(report.findings.filter(({severity}, i) => severity !== 'info' && !kNotOfWaiting.has(raw.pictures[i]!)).flatMap(({about}) => about.ranks));
  const grid = raw.steps === null ? null : new StepGrid(raw.steps);
  return {
    version, report, names: raw.names, timelines: raw.timelines, memory: raw.memory, pictures: raw.pictures, documents: raw.documents ?? {}, kernels: report.top_kernels,
    grid, work: grid === null || !raw.work ? null : new WorkGrid(raw.work, grid), stepStarts: new Map((raw.step_starts ?? []).map(starts => [starts.row, startsOf(starts)])),
    rankName: row => (report.ranks[row].rank === null ? `pid ${report.ranks[row].pid}` : `rank ${report.ranks[row].rank}` + processOf(row)) + gpuOf(row),
    shortName, rowOfName: name => report.ranks.findIndex((_, row) => shortName(row) === name),
    blames: row => blamed.has(report.ranks[row].rank ?? -1),
    place: row => report.ranks[row].host + (report.ranks[row].device === null ? '' : `, GPU ${report.ranks[row].device}`),
    rowOfRank: rank => rows.get(rank) ?? -1, key, rowOfKey: wanted => rowsOfKeys.get(wanted) ?? -1,
  };
}
