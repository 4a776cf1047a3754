// The line that stays in view: which run this is, how far it can be trusted, and what is selected.
import {button, h} from './dom';
import {Data} from './data';
import {Store} from './selection';
import {count, duration, kTimingWords, percent, plural} from './units';

function hardware(data: Data): string {
  const kinds = new Map<string, number>();
  for (const device of data.report.conditions.devices) kinds.set(device.name, (kinds.get(device.name) ?? 0) + 1);
  return [...kinds].map(([name, n]) => `${n}x ${name}`).join(', ');
}

function title(data: Data): string {
  const c = data.report.conditions;
  if (c.job) return c.job;
  const words: string[] = c.command_line ?? [];
  const program = words.find(word => /\.py$/.test(word)) ?? words[0] ?? 'run';
  return program.split('/').pop()!;
}

// What is wrong with the records themselves, worst first; empty if nothing is.
function doubts(data: Data): string[] {
  const t = data.report.trust;
  const out: string[] = [];
  const lost = Object.values(t.lost).reduce((sum, n) => sum + n, 0);
  if (lost > 0) out.push(`${plural(lost, 'record')} lost, coverage ${percent(t.coverage ?? 1)}`);
  if (t.timing_source !== 'cupti_activity') out.push(`GPU times: ${kTimingWords[t.timing_source]}`);
  const left = t.cut_off.filter(c => c.by === 'collector').length;
  if (t.cut_off.length > left) out.push(`${plural(t.cut_off.length - left, 'process', 'processes')} exited uncleanly`);
  if (left > 0) out.push(`the collector ended before ${plural(left, 'process', 'processes')}`);
  if (t.damaged_logs.length > 0) out.push(plural(t.damaged_logs.length, 'damaged log'));
  if (t.outside_window > 0) out.push(`${count(t.outside_window)} records left out on request`);
  if (t.detail_since_ns) out.push('older single records dropped');
  return out;
}

function trust(data: Data): HTMLElement {
  const t = data.report.trust;
  const bad = doubts(data);
  const cost = t.overhead_fraction === null || t.overhead_fraction === undefined
      ? '' : `; profiling cost at least ${percent(t.overhead_fraction)}`;
  const words = bad.length === 0 ? `${count(t.records)} records, none lost${cost}`
                                 : `${count(t.records)} records; ${bad.join('; ')}${cost}`;
  return h('a', {href: '#conditions', class: bad.length === 0 ? 'trust fine' : 'trust doubtful', id: 'trust'},
           h('span', {'aria-hidden': 'true'}, bad.length === 0 ? '✓ ' : '⚠ '), words);
}

function steps(data: Data): string {
  const c = data.report.conditions;
  const s = data.report.steps;
  if (!s) return `no steps found in ${duration(c.duration_ns)}`;
  return `${plural(s.count, 'step')} in ${duration(c.duration_ns)}, ${duration(s.time_ns.mean)} a step`;
}

export function themeButton(): HTMLButtonElement {
  const themes = ['auto', 'light', 'dark'];
  const {dataset} = document.documentElement;
  const theme = (): string => dataset.theme ?? 'auto';
  const press = (): void => {
    const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    if (next === 'auto') delete dataset.theme;
    else dataset.theme = next;
    box.textContent = words();
    document.dispatchEvent(new Event('themechange'));
  };
  const words = (): string => `Theme: ${theme()}`;
  const box = button(words(), press);
  box.id = 'theme';
  return box;
}

// "steps 41 to 199": those of the columns that hold them.
export function stepsWords(data: Data, steps: [number, number]): string {
  const columns = data.grid!.columnsOf(steps);
  const first = data.grid!.stepOf(columns[0]);
  const last = data.grid!.lastStepOf(columns[1]);
  return first === last ? `step ${first}` : `steps ${first} to ${last}`;
}

// "rank 5, steps 41 to 199"
export function selectionWords(data: Data, store: Store): string {
  const {ranks, steps: chosen} = store.value;
  const parts: string[] = [];
  const names = [...ranks].map(row => data.shortName(row));
  if (names.length > 0)
    parts.push(`${names.length === 1 ? 'rank' : 'ranks'} ${names.slice(0, 8).join(', ')}${names.length > 8 ? ' ...' : ''}`);
  if (chosen !== null && data.grid !== null) parts.push(stepsWords(data, chosen));
  return parts.join(', ');
}

// The finding that was chosen, where it is about all ranks and steps.
export function chosenWords(data: Data, store: Store): string {
  const {finding} = store.value;
  const words = selectionWords(data, store);
  return words !== '' || finding === null ? words : `finding ${finding + 1}, about all ranks and steps`;
}

// `line`: what the job does now; null: it is over.
export function header(data: Data, store: Store, line: HTMLElement | null): HTMLElement {
  const c = data.report.conditions;
  const hosts = c.hosts.length === 1 ? `on ${c.hosts[0]}` : `on ${plural(c.hosts.length, 'host')}`;
  const versions = [c.cuda_runtime ? `CUDA ${c.cuda_runtime}` : '', c.nccl ? `NCCL ${c.nccl}` : ''];
  const chosen = h('span', {class: 'chosen', hidden: true});
  const clear = (): void => store.set({finding: null, ranks: new Set(), steps: null});
  store.follow(() => {
    const words = chosenWords(data, store);
    chosen.hidden = words === '';
    chosen.replaceChildren(h('span', {}, `Selected: ${words}`), button('Clear', clear, 'Clear the selection'));
  });
  return h('header', {},
           h('h1', {}, title(data)),
           h('span', {}, [`${plural(data.report.ranks.length, 'rank')} ${hosts}`, hardware(data), ...versions]
                             .filter(words => words !== '').join(', ')),
           h('span', {id: 'pace'}, steps(data)), trust(data), line ?? '', chosen, themeButton());
}
