// What level calls knows of the whole run: who is late, and when steps were recorded in full.
import {Data, TracedRank} from './data';
import {append, h, section} from './dom';
import {Store} from './selection';
import {Column, table} from './table';
import {count, duration, percent} from './units';

function known(value: number | null, words: (value: number) => string): string { return value === null ? '-' : words(value); }

function shareLast(rank: TracedRank): number | null { return rank.compared_calls === 0 ? null : rank.last_calls / rank.compared_calls; }

const kColumns: Column<TracedRank>[] = [
  {title: 'rank', number: rank => rank.rank, text: rank => rank.rank === null ? `pid ${rank.pid}` : `rank ${rank.rank}`},
  {title: 'step', number: rank => rank.step_ns, text: rank => known(rank.step_ns, duration)},
  {title: 'longest', number: rank => rank.longest_step_ns, text: rank => known(rank.longest_step_ns, duration)},
  {title: 'collectives', number: rank => rank.compared_calls, text: rank => count(rank.compared_calls), path: (_, row) => `call_trace.ranks.${row}.compared_calls`, unit: 'count'},
  {title: 'last at', number: shareLast, text: rank => known(shareLast(rank), percent)},
  {title: 'late in all', number: rank => rank.late_ns, text: rank => duration(rank.late_ns), path: (_, row) => `call_trace.ranks.${row}.late_ns`, unit: 'ns'},
  {title: 'of the time', number: rank => rank.late_share, text: rank => percent(rank.late_share), path: (_, row) => `call_trace.ranks.${row}.late_share`, unit: 'share'}];

export function calls(data: Data, store: Store): HTMLElement | null {
  const trace = data.report.call_trace;
  if (trace === null) return null;
  const {root, body} = section('calls', 'Level calls',
                               'Of the whole run. Kernels, copies, sends and receives, and why a GPU is idle are not recorded at this level; what else is shown here is of captured steps.');
  append(body, [
    h('p', {}, trace.statement),
    trace.raises.length === 0 ? null : h('ul', {}, ...trace.raises.map(raise => h('li', {}, `Recorded in full, because ${raise.reason}: ${raise.outcome}`))),
    table<TracedRank>({
      id: 'calls-table', label: 'Level calls', rows: trace.ranks, most: 32, sort: trace.ranks.length > 32 ? 5 : undefined,
      mark: rank => rank.rank !== null && rank.rank === trace.late_rank, columns: kColumns}, store.settings)]);
  return root;
}
