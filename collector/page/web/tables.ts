// The tables: ranks, collectives, phases, communicators.
import {isChosen, SeenCalls, seenCalls, windowWords} from './chosen_work';
import {Collective, Communicator, Data, GpuHealth, kPartClass, kParts, kPartWords, Part, Phase, Rank} from './data';
import {h, section} from './dom';
import {stepsWords} from './header';
import {Block, icicle} from './icicle';
import {Store} from './selection';
import {Column, table} from './table';
import {bytes, count, duration, percent, plural, rate, shortComm} from './units';

function peakOf(rank: Rank): number {
  return Math.max(0, ...Object.values(rank.memory).map(kind => kind !== undefined && 'high_water_bytes' in kind ? kind.high_water_bytes : 0));
}

interface RankRow { rank: Rank; row: number; means: Record<Part, number> & {time_ns: number} | null; caused_ns: number | null }

function stepBar(means: Record<Part, number>, length: number): HTMLElement {
  return h('span', {class: 'share-bar small', role: 'img', style: `width:${(length * 120).toFixed(1)}px`,
                    'aria-label': kParts.map(part => `${kPartWords[part]} ${duration(means[part])}`).join(', ')},
           ...kParts.map(part => h('i', {class: kPartClass[part], style: `flex-grow:${means[part]}`, title: `${kPartWords[part]} ${duration(means[part])}`})));
}

// Of the run as the report has it, or of the selected steps.
function rankRows(data: Data, steps: [number, number] | null): RankRow[] {
  const warmup = data.report.steps?.warmup_count ?? 0;
  return data.report.ranks.map((rank, row) => {
    if (steps !== null && data.grid !== null)
      return {rank, row, means: data.grid.meanOf(new Set([row]), steps, warmup), caused_ns: data.grid.causedBy(row, steps, warmup)};
    const of = rank.steps;
    const means = !of ? null : {time_ns: of.time_ns.mean, compute_ns: of.compute_ns.mean, exposed_comm_ns: of.exposed_comm_ns.mean, copy_ns: of.copy_ns.mean, idle_ns: of.idle_ns.mean};
    return {rank, row, means, caused_ns: rank.wait.caused_per_step_ns};
  });
}

// At levels idle and calls, ranks that were captured alone.
function isRecorded(data: Data, rank: Rank): boolean {
  const demand = data.report.conditions.on_demand;
  return demand === null || demand.windows.some(window => rank.rank !== null && window.ranks.includes(rank.rank));
}

export function ranks(data: Data, store: Store): HTMLElement {
  const {root, body} = section('ranks', 'Ranks', 'Means of the run, or of the selected steps. Choose a rank to select it everywhere.');
  const note = h('p', {class: 'note', hidden: true});
  const list = h('div', {});
  const named = new Set(data.report.findings.filter(finding => finding.severity !== 'info').flatMap(finding => finding.about.ranks));
  const show = (): void => {
    const {steps, ranks: chosen} = store.value;
    const rows = rankRows(data, steps);
    const longest = Math.max(1, ...rows.map(({means}) => means?.time_ns ?? 0));
    const part = (key: 'time_ns' | Part, title: string): Column<RankRow> => ({
      title, number: ({means}) => means?.[key] ?? null, text: ({means}) => means === null ? '-' : duration(means[key]),
      path: steps === null ? ({row}) => `ranks.${row}.steps.${key}.mean` : undefined, unit: 'ns'});
    // "-" where nothing was recorded of the rank, or its kernels were counted alone.
    const ofKernels = (key: 'count' | 'busy_ns', title: string, words: (value: number) => string, unit: string): Column<RankRow> => {
      const known = (rank: Rank): boolean => isRecorded(data, rank) && (key === 'count' || rank.kernels.count === 0 || rank.kernels.busy_ns > 0);
      return {title, number: ({rank}) => known(rank) ? rank.kernels[key] : null, text: ({rank}) => known(rank) ? words(rank.kernels[key]) : '-',
              path: ({rank, row}) => known(rank) ? `ranks.${row}.kernels.${key}` : null, unit};
    };
    const ofRun: Column<RankRow>[] = steps !== null ? [] : [
      ofKernels('count', 'kernels', count, 'count'), ofKernels('busy_ns', 'busy', duration, 'ns'),
      {title: 'peak memory', number: ({rank}) => peakOf(rank), text: ({rank}) => bytes(peakOf(rank))}];
    note.hidden = steps === null;
    note.textContent = steps === null ? '' : `Of ${stepsWords(data, steps)}: the mean step after the warm-up.`;
    list.replaceChildren(table<RankRow>({
      id: 'rank-table', label: 'Ranks', rows, most: 32, sort: rows.length > 32 ? 8 : undefined,
      search: rows.length > 16 ? 'Rank or host' : undefined,
      matches: ({rank, row}, words) => data.rankName(row).includes(words) || rank.host.toLowerCase().includes(words),
      mark: ({rank}) => rank.rank !== null && named.has(rank.rank), chosen: ({row}) => chosen.has(row),
      choose: ({row}) => store.set({ranks: new Set([row])}), chooseWords: ({row}) => data.rankName(row),
      columns: [
        {title: 'rank', number: ({row}) => row, text: ({row}) => data.rankName(row)},
        {title: 'where', text: ({row}) => data.place(row)},
        {title: 'step', text: ({means}) => means === null ? '-' : stepBar(means, means.time_ns / longest)},
        part('time_ns', 'total'), part('compute_ns', 'compute'), part('exposed_comm_ns', 'exposed'), part('copy_ns', 'copies'), part('idle_ns', 'idle'),
        {title: 'wait caused', number: ({caused_ns}) => caused_ns, text: ({caused_ns}) => caused_ns === null ? '-' : duration(caused_ns),
         path: steps === null ? ({row}) => `ranks.${row}.wait.caused_per_step_ns` : undefined, unit: 'ns'},
        ...ofRun]}, store.settings));
  };
  body.append(note, list);
  show();
  store.follow((_, changed) => { if (changed.has('steps') || changed.has('ranks')) show(); });
  return root;
}

const kLimitWords: Record<GpuHealth['limited'][number]['limit'], string> = {
  power_cap: 'power limit', thermal: 'temperature', hardware_thermal: 'temperature (board)', power_brake: 'power supply', hardware_slowdown: 'board',
  sync_boost: 'sync boost', clocks_set: 'clocks that are set', unknown: 'unknown'};

export function gpus(data: Data, store: Store): HTMLElement | null {
  const rows = data.report.ranks.flatMap((rank, row) => rank.gpu_health ? [{rank, row, health: rank.gpu_health}] : []);
  if (rows.length === 0) return null;
  type Row = typeof rows[number];
  const {root, body} = section('gpus', 'GPUs', 'Clock, power and limits while they computed, as NVML reports them once a second.');
  const number = (title: string, of: (health: GpuHealth) => number | null | undefined, words: (value: number) => string): Column<Row> => ({
    title, number: ({health}) => of(health) ?? null, text: ({health}) => of(health) === null || of(health) === undefined ? '-' : words(of(health)!)});
  const whole = (unit: string) => (value: number) => `${count(Math.round(value))} ${unit}`;
  const link = (generation: number | null | undefined, lanes: number | null | undefined): string => generation && lanes ? `${generation}.0 x${lanes}` : '-';
  const errors = (health: GpuHealth): string => [
    ...new Set(health.errors.map(error => `Xid ${error.xid}`)), ...(health.ecc_uncorrected > 0 ? [`${count(health.ecc_uncorrected)} uncorrected`] : []),
    ...(health.ecc_corrected > 0 ? [`${count(health.ecc_corrected)} corrected`] : [])].join(', ') || '-';
  body.append(table<Row>({
    id: 'gpu-table', label: 'GPUs', rows, most: 32, search: rows.length > 16 ? 'Rank or host' : undefined,
    matches: ({rank, row}, words) => data.rankName(row).includes(words) || rank.host.toLowerCase().includes(words),
    choose: ({row}) => store.set({ranks: new Set([row])}), chooseWords: ({row}) => data.rankName(row),
    columns: [
      {title: 'rank', number: ({row}) => row, text: ({row}) => data.rankName(row)}, {title: 'where', text: ({row}) => data.place(row)},
      number('clock', health => health.clock_mhz, whole('MHz')), number('lowest', health => health.lowest_clock_mhz, whole('MHz')),
      number('highest possible', health => health.max_clock_mhz, whole('MHz')),
      {title: 'kept down by', wide: true, number: ({health}) => health.limited[0]?.share ?? 0,
       text: ({health}) => health.limited.map(each => `${kLimitWords[each.limit]} ${percent(each.share)}`).join(', ') || '-'},
      number('power', health => health.power_w, whole('W')), number('power limit', health => health.power_limit_w, whole('W')),
      number('temperature', health => health.temperature_c, whole('°C')),
      {title: 'PCIe', text: ({health}) => link(health.pcie_generation, health.pcie_lanes)},
      {title: 'errors', number: ({health}) => health.error_count + health.ecc_uncorrected, text: ({health}) => errors(health)}]}, store.settings));
  return root;
}

export function collectives(data: Data, store: Store): HTMLElement | null {
  const calls = data.report.collectives;
  if (calls.length === 0) return null;
  type Row = {call: Collective; index: number; of: SeenCalls};
  const {root, body} = section('collectives', 'Collectives');
  const note = h('p', {class: 'note', hidden: true});
  const list = h('div', {});
  const show = (): void => {
    const chosen = isChosen(data, store);
    const rows = calls.map((call, index): Row => ({call, index, of: seenCalls(data, store, index)})).filter(({of}) => !chosen || of.calls > 0);
    const number = (title: string, of: (row: Row) => number | null | undefined, words: (value: number) => string, path?: string, unit?: string): Column<Row> => ({
      title, number: row => of(row) ?? null, text: row => of(row) === null || of(row) === undefined ? '-' : words(of(row)!),
      path: path && !chosen ? ({index}) => `collectives.${index}.${path}` : undefined, unit});
    const times = chosen
        ? [number('time mean', ({of}) => of.mean_ns, duration, undefined, 'ns'), number('transfer', ({of}) => of.transfer_ns, duration, undefined, 'ns'),
           number('wait', ({of}) => of.mean_ns !== null && of.transfer_ns !== null ? Math.max(0, of.mean_ns - of.transfer_ns) : null, duration, undefined, 'ns'),
           number('busbw', ({of}) => of.busbw, rate, undefined, 'rate'), number('without waiting', ({of}) => of.transfer_busbw, rate, undefined, 'rate'),
           number('busbw of the run', ({call}) => call.busbw_gbytes_per_s, rate, undefined, 'rate')]
        : [number('time p50', ({call}) => call.time_ns.count > 0 ? call.time_ns.p50 : null, duration, 'time_ns.p50', 'ns'),
           number('p95', ({call}) => call.time_ns.count > 0 ? call.time_ns.p95 : null, duration, 'time_ns.p95', 'ns'),
           number('transfer', ({call}) => call.steady?.transfer_ns ?? call.transfer_mean_ns, duration),
           number('wait', ({call}) => call.steady?.wait_ns, duration),
           number('algbw', ({call}) => call.algbw_gbytes_per_s, rate, 'algbw_gbytes_per_s', 'rate'),
           number('busbw', ({call}) => call.busbw_gbytes_per_s, rate, 'busbw_gbytes_per_s', 'rate'),
           number('of peak', ({call}) => call.peak_share, percent, 'peak_share', 'share')];
    note.hidden = !chosen;
    const missing = calls.filter((_, index) => !data.work?.collectives.has(index)).length;
    note.textContent = chosen ? `${windowWords(data, store)}${missing > 0 ? ` ${plural(missing, 'entry', 'entries')} without steps or with many sizes ${missing === 1 ? 'is' : 'are'} left out.` : ''}` : '';
    list.replaceChildren(table<Row>({
      id: 'collective-table', label: 'Collectives', rows, most: 16, search: calls.length > 8 ? 'Operation or communicator' : undefined,
      matches: ({call}, words) => `${call.op} ${call.comm} ${call.comm_name ?? ''}`.toLowerCase().includes(words),
      columns: [
        {title: 'operation', text: ({call}) => call.fused ? `${call.op} x${call.calls_per_plan} fused` : call.op},
        {title: 'communicator', text: ({call}) => call.comm_name ? `${call.comm_name} (${shortComm(call.comm)})` : shortComm(call.comm)},
        number('ranks', ({call}) => call.comm_ranks, count), number('calls', ({of}) => of.calls, count, 'calls', 'count'),
        number('size', ({call}) => call.size_bytes, bytes, 'size_bytes', 'bytes'), ...times]}, store.settings));
  };
  body.append(note, list);
  show();
  store.follow((_, changed) => { if (data.work !== null && (changed.has('steps') || changed.has('ranks'))) show(); });
  return root;
}

// GPU time of the work that was launched in each range, by range: what NVTX says, projected on the GPU.
function rangesOnGpu(data: Data): HTMLElement | null {
  const blocks = new Map<string, Block>();
  const roots: Block[] = [];
  for (const phase of [...data.report.phases].sort((a, b) => a.depth - b.depth || b.time_ns.total - a.time_ns.total)) {
    const ns = phase.time_ns.total;
    if (ns <= 0) continue;
    const above = blocks.get(phase.path.slice(0, -phase.name.length - 1));
    const block: Block = {name: phase.name, ns, words: `${phase.path}: ${duration(ns)}`, css: phase.depth % 2 === 0 ? 'own' : 'library', below: []};
    blocks.set(phase.path, block);
    if (phase.depth > 0 && above === undefined) continue;
    (above === undefined ? roots : above.below).push(block);
  }
  const all = roots.reduce((sum, block) => sum + block.ns, 0);
  return all === 0 ? null : icicle(`${duration(all)}: GPU time of all ranks by the range in which it was launched`, all, roots);
}

export function phases(data: Data, store: Store): HTMLElement | null {
  const rows = data.report.phases;
  if (rows.length === 0) return null;
  const {root, body} = section('phases', 'Annotated ranges', 'Of the whole run. A range holds the work that was launched in it, wherever the GPU ran it.');
  const picture = rangesOnGpu(data);
  if (picture !== null) body.append(picture);
  const time = (title: string, of: (phase: Phase) => number): Column<Phase> => ({title, number: of, text: phase => duration(of(phase))});
  body.append(table<Phase>({
    id: 'phase-table', label: 'Annotated ranges', rows, most: 16, search: rows.length > 8 ? 'Search' : undefined,
    matches: (phase, words) => phase.path.toLowerCase().includes(words),
    columns: [{title: 'range', text: phase => phase.path, wide: true}, {title: 'instances', number: phase => phase.host_time_ns.count, text: phase => count(phase.host_time_ns.count)},
              time('GPU mean', phase => phase.time_ns.mean), time('p50', phase => phase.time_ns.p50), time('p95', phase => phase.time_ns.p95),
              time('max', phase => phase.time_ns.max), time('host mean', phase => phase.host_time_ns.mean)]}, store.settings));
  return root;
}

// Without the columns that have nothing to say of any row.
function used<Row>(rows: Row[], columns: Column<Row>[]): Column<Row>[] {
  return columns.filter(column => rows.some(row => column.text(row) !== '-'));
}

export function communicators(data: Data, store: Store): HTMLElement | null {
  const rows = data.report.communicators;
  if (rows.length === 0) return null;
  const {root, body} = section('communicators', 'Communicators');
  const hosts = (c: Communicator): string => c.hosts === 0 ? '-' : c.ranks_per_host && c.ranks_per_host[0] !== c.ranks_per_host[1] ? `${c.hosts} (${c.ranks_per_host[0]} to ${c.ranks_per_host[1]} ranks each)` : String(c.hosts);
  body.append(table<Communicator>({
    id: 'communicator-table', label: 'Communicators', rows, most: 16, search: rows.length > 16 ? 'Search' : undefined,
    matches: (c, words) => `${c.comm} ${c.name ?? ''} ${Object.keys(c.operations).join(' ')}`.toLowerCase().includes(words),
    columns: used(rows, [{title: 'communicator', text: c => c.name ? `${c.name} (${shortComm(c.comm)})` : shortComm(c.comm)},
              {title: 'ranks', number: c => c.ranks, text: c => c.ranks === null ? '?' : c.ranks_heard < c.ranks ? `${c.ranks_heard} of ${c.ranks}` : String(c.ranks)},
              {title: 'hosts', number: c => c.hosts, text: hosts},
              {title: 'members', text: c => c.members.length > 12 ? `${c.members.slice(0, 12).join(', ')} ...` : c.members.join(', ') || '-'},
              {title: 'made by', text: c => c.made_by ?? '-'}, {title: 'ran as', text: c => c.ran_as ?? '-'},
              {title: 'calls', number: c => c.calls, text: c => count(c.calls)}, {title: 'bytes', number: c => c.bytes, text: c => bytes(c.bytes)},
              {title: 'operations', text: c => Object.entries(c.operations).map(([op, sum]) => `${op} ${count(sum.calls)}`).join(', ') || '-', wide: true}])}, store.settings));
  return root;
}
