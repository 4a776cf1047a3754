// Kernels: which ones take the time, and what kind of work they do; of all steps, or of what is selected.
import {isChosen, windowWords} from './chosen_work';
import {classChart} from './class_chart';
import {Data, Kernel} from './data';
import {h, section, select} from './dom';
import {kernelDetail} from './kernel_detail';
import {Store} from './selection';
import {Column, table} from './table';
import {count, duration, percent, plural} from './units';
import {WorkSum} from './work';

// Each class has a colour; matrix products have that of compute.
export function classCss(kernelClass: string): string {
  if (kernelClass === 'collective') return 'comm';
  if (kernelClass === 'copy') return 'copy';
  return `compute class-${kernelClass}`;
}

// A kernel's name without its parameters; the whole name is the cell's title.
function shortName(name: string): string {
  const kMost = 90;
  const bare = name.replace(/^void /, '').replace(/\(anonymous namespace\)::/g, '').replace(/\([^()]*(\([^()]*\)[^()]*)*\)$/, '') || name;
  return bare.length > kMost ? `${bare.slice(0, kMost - 1)}…` : bare;
}

interface Share { class: string; share: number }

function classBar(classes: Share[]): HTMLElement {
  return h('div', {},
           h('div', {class: 'share-bar', role: 'img', 'aria-label': `Kernel time by class: ${classes.map(k => `${k.class} ${percent(k.share)}`).join(', ')}`},
             ...classes.map(k => h('i', {class: classCss(k.class), style: `flex-grow:${k.share}`, title: `${k.class} ${percent(k.share)}`}))),
           h('p', {class: 'legend'}, ...classes.map(k => h('span', {}, h('i', {class: classCss(k.class)}), `${k.class} ${percent(k.share)}`))));
}

interface Row { kernel: Kernel; share: number; total_ns: number; calls: number; perStep: number | null; mean_ns: number | null }

function ofRun(data: Data): Row[] {
  return data.kernels.map(kernel => ({kernel, share: kernel.share, total_ns: kernel.time_ns.total, calls: kernel.time_ns.count,
                                      perStep: kernel.steady?.calls_per_step ?? null, mean_ns: kernel.time_ns.mean}));
}

// Of the selection's complete steps after the warm-up. What communicates is in the table of collectives, and counts in the shares.
function ofSelection(data: Data, store: Store): {rows: Row[]; classes: Share[]} {
  const {ranks, steps} = store.value;
  const work = data.work!;
  const warmup = data.report.steps?.warmup_count ?? 0;
  const sum = (of: Parameters<typeof work.sumOf>[0]): WorkSum | null => work.sumOf(of, ranks, steps, warmup);
  let all = 0;
  const classes = new Map<string, number>();
  const add = (name: string, ns: number): void => {
    all += ns;
    classes.set(name, (classes.get(name) ?? 0) + ns);
  };
  const sums = new Map<number, WorkSum>();
  for (const [place, of] of work.kernels) {
    const one = sum(of);
    if (one === null) continue;
    sums.set(place, one);
    add(data.kernels[place].class, one.time_ns);
  }
  for (const of of work.collectives.values()) add('collective', sum(of)?.time_ns ?? 0);
  const rows = [...sums].map(([place, {calls, time_ns, steps: in_steps}]): Row => ({
    kernel: data.kernels[place], share: all > 0 ? time_ns / all : 0, total_ns: time_ns, calls, perStep: calls / in_steps, mean_ns: calls > 0 ? time_ns / calls : null}));
  return {rows, classes: [...classes].map(([name, ns]) => ({class: name, share: all > 0 ? ns / all : 0})).filter(one => one.share > 0).sort((a, b) => b.share - a.share)};
}

export function kernels(data: Data, store: Store): HTMLElement | null {
  const all = data.kernels;
  if (all.length === 0) return null;
  const {root, controls, body} = section('kernels', 'Kernels', data.work === null ? '' : 'Choose a kernel to see it over the steps and by rank.');
  const above = h('div', {});
  const detail = h('div', {});
  const list = h('div', {});
  const classes = [...new Set(all.map(kernel => kernel.class))].sort();
  const view = store.settings.of<{class: string; chosen: string | null}>('kernels', {class: 'all', chosen: null});
  const showDetail = (): void => {
    const place = data.kernels.findIndex(kernel => kernel.name === view.chosen);
    detail.replaceChildren();
    if (place >= 0 && data.work !== null && !data.work.kernels.has(place)) {
      detail.append(h('p', {class: 'note'}, data.kernels[place]!.class === 'collective' ? 'What communicates is counted by what it carries: see the table of collectives.'
                                                                                          : 'It ran in no complete step.'));
    } else if (place >= 0 && data.work !== null) {
      detail.append(kernelDetail(data, store, place, () => {
        view.chosen = null;
        showDetail();
      }));
    }
  };
  const show = (): void => {
    const chosen = isChosen(data, store);
    const {rows, classes: shares} = chosen ? ofSelection(data, store) : {rows: ofRun(data), classes: data.report.compute.classes.filter(k => k.share > 0)};
    const most = Math.max(...rows.map(row => row.share), 0.001);
    const number = (title: string, of: (kernel: Kernel) => number): Column<Row> => ({title, unit: 'ns', number: ({kernel}) => of(kernel), text: ({kernel}) => duration(of(kernel))});
    const none = rows.length === 0 ? 'There is none among them.' : 'What communicates is in the table of collectives.';
    above.replaceChildren(h('p', {class: 'note', hidden: !chosen}, chosen ? `${windowWords(data, store)} ${none}` : ''), classBar(shares));
    list.replaceChildren(table<Row>({
      id: 'kernel-table', label: 'Kernels', sort: 2, most: 20, search: 'Search',
      rows: view.class === 'all' ? rows : rows.filter(({kernel}) => kernel.class === view.class),
      matches: ({kernel}, words) => kernel.name.toLowerCase().includes(words) || kernel.class.includes(words),
      choose: data.work === null ? undefined : ({kernel}) => {
        view.chosen = view.chosen === kernel.name ? null : kernel.name;
        showDetail();
        detail.scrollIntoView({block: 'nearest'});
      },
      chooseWords: ({kernel}) => shortName(kernel.name),
      columns: [
        {title: 'kernel', text: ({kernel}) => h('span', {title: kernel.name}, shortName(kernel.name)), whole: ({kernel}) => kernel.name, wide: true},
        {title: 'class', text: ({kernel}) => h('span', {class: 'class'}, h('i', {class: classCss(kernel.class)}), kernel.class)},
        {title: 'share', number: row => row.share, text: row => h('span', {class: 'bar-cell'},
          h('i', {class: classCss(row.kernel.class), style: `width:${(row.share / most * 80).toFixed(1)}px`}), percent(row.share))},
        {title: 'total', unit: 'ns', number: row => row.total_ns, text: row => duration(row.total_ns)},
        {title: 'calls', number: row => row.calls, text: row => count(row.calls)},
        {title: 'a step', number: row => row.perStep, text: row => row.perStep === null ? '-' : String(Math.round(row.perStep * 10) / 10)},
        {title: 'mean', unit: 'ns', number: row => row.mean_ns, text: row => row.mean_ns === null ? '-' : duration(row.mean_ns)},
        ...(chosen ? [number('mean of the run', kernel => kernel.time_ns.mean)] : [number('p50', kernel => kernel.time_ns.p50), number('p99', kernel => kernel.time_ns.p99)])]}, store.settings));
  };
  controls.append(select('Class', [['all', 'all'], ...classes.map((name): [string, string] => [name, name])], view.class, chosen => {
    view.class = chosen;
    show();
  }));
  const overSteps = classChart(data, store, classCss);
  body.append(above);
  if (overSteps !== null) body.append(overSteps);
  body.append(detail, list);
  if (all.length >= 20) body.append(h('p', {class: 'note'}, `The ${plural(all.length, 'kernel')} with most time over the run; gpuprobe query has all.`));
  show();
  showDetail();
  store.follow((_, changed) => {
    if (data.work === null || (!changed.has('ranks') && !changed.has('steps'))) return;
    show();
    showDetail();
  });
  return root;
}
