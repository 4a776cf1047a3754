// What kernels and collectives did in the steps and on the ranks that are selected.
import {Data} from './data';
import {selectionWords} from './header';
import {Store} from './selection';

export function isChosen(data: Data, store: Store): boolean {
  return data.work !== null && (store.value.ranks.size > 0 || store.value.steps !== null);
}

// "Of rank 1, steps 40 to 59"; where the page counts several steps together: which they are.
export function windowWords(data: Data, store: Store): string {
  const {steps} = store.value;
  const work = data.work!;
  const [first, last] = work.columnsOf(steps);
  const counted = steps !== null && (work.stepOf(first) < steps[0] || work.lastStepOf(last) > steps[1])
      ? `, counted by ${work.stepsPerColumn} as steps ${work.stepOf(first)} to ${work.lastStepOf(last)}` : '';
  return `Of ${selectionWords(data, store)}${counted}: complete steps after the warm-up.`;
}

// null: not known.
export interface SeenCalls {
  calls: number; mean_ns: number | null; transfer_ns: number | null;  // of a plan, with and without waiting
  busbw: number | null; transfer_busbw: number | null;  // GB/s
}

// Of the run as the report has it, or of what is selected.
export function seenCalls(data: Data, store: Store, place: number): SeenCalls {
  const call = data.report.collectives[place]!;
  if (!isChosen(data, store)) {
    return {calls: call.calls, mean_ns: call.time_ns.count > 0 ? call.time_ns.mean : null, transfer_ns: call.transfer_mean_ns,
            busbw: call.busbw_gbytes_per_s, transfer_busbw: call.transfer_busbw_gbytes_per_s};
  }
  const work = data.work!.collectives.get(place);
  const sum = work === undefined ? null : data.work!.sumOf(work, store.value.ranks, store.value.steps, data.report.steps?.warmup_count ?? 0);
  if (sum === null || sum.calls === 0) return {calls: 0, mean_ns: null, transfer_ns: null, busbw: null, transfer_busbw: null};
  // All plans of an entry move the same.
  const bytes = call.transfer_mean_ns !== null && call.transfer_busbw_gbytes_per_s !== null ? call.transfer_busbw_gbytes_per_s * call.transfer_mean_ns : null;
  const mean_ns = sum.time_ns / sum.calls;
  return {calls: sum.calls * call.calls_per_plan, mean_ns, transfer_ns: sum.transfer_ns, busbw: bytes === null ? null : bytes / mean_ns,
          transfer_busbw: bytes === null || sum.transfer_ns === null ? null : bytes / sum.transfer_ns};
}
