// Kernels: which ones take the time, and what kind of work they do.
import {Data, Kernel} from './data';
import {h, section, select} from './dom';
import {Store} from './selection';
import {table} from './table';
import {count, duration, percent} from './units';

// One colour for all compute; classes differ by their name and, in the bar, by how dark they are.
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

function classBar(data: Data): HTMLElement {
  const classes = data.report.compute.classes.filter(k => k.share > 0);
  return h('div', {},
           h('div', {class: 'share-bar', role: 'img', 'aria-label': `Kernel time by class: ${classes.map(k => `${k.class} ${percent(k.share)}`).join(', ')}`},
             ...classes.map(k => h('i', {class: classCss(k.class), style: `flex-grow:${k.share}`, title: `${k.class} ${percent(k.share)}`}))),
           h('p', {class: 'legend'}, ...classes.map(k => h('span', {}, h('i', {class: classCss(k.class)}), `${k.class} ${percent(k.share)}`))));
}

export function kernels(data: Data, store: Store): HTMLElement | null {
  const all = data.kernels;
  if (all.length === 0) return null;
  const {root, controls, body} = section('kernels', 'Kernels');
  const most = Math.max(...all.map(kernel => kernel.share));
  const list = h('div', {});
  const classes = [...new Set(all.map(kernel => kernel.class))].sort();
  const view = store.settings.of('kernels', {class: 'all'});
  const show = (): void => list.replaceChildren(table<Kernel>({
    id: 'kernel-table', label: 'Kernels', sort: 2, most: 20, search: 'Search',
    rows: view.class === 'all' ? all : all.filter(kernel => kernel.class === view.class),
    matches: (kernel, words) => kernel.name.toLowerCase().includes(words) || kernel.class.includes(words),
    columns: [
      {title: 'kernel', text: kernel => h('span', {title: kernel.name}, shortName(kernel.name)), whole: kernel => kernel.name, wide: true},
      {title: 'class', text: kernel => h('span', {class: 'class'}, h('i', {class: classCss(kernel.class)}), kernel.class)},
      {title: 'share', number: kernel => kernel.share, text: kernel => h('span', {class: 'bar-cell'},
        h('i', {class: classCss(kernel.class), style: `width:${(kernel.share / most * 80).toFixed(1)}px`}), percent(kernel.share))},
      {title: 'total', unit: 'ns', number: kernel => kernel.time_ns.total, text: kernel => duration(kernel.time_ns.total)},
      {title: 'calls', number: kernel => kernel.time_ns.count, text: kernel => count(kernel.time_ns.count)},
      {title: 'a step', number: kernel => kernel.steady?.calls_per_step ?? null,
       text: kernel => kernel.steady ? String(Math.round(kernel.steady.calls_per_step * 10) / 10) : '-'},
      {title: 'mean', unit: 'ns', number: kernel => kernel.time_ns.mean, text: kernel => duration(kernel.time_ns.mean)},
      {title: 'p50', unit: 'ns', number: kernel => kernel.time_ns.p50, text: kernel => duration(kernel.time_ns.p50)},
      {title: 'p99', unit: 'ns', number: kernel => kernel.time_ns.p99, text: kernel => duration(kernel.time_ns.p99)}]}, store.settings));
  controls.append(select('Class', [['all', 'all'], ...classes.map((name): [string, string] => [name, name])], view.class, chosen => {
    view.class = chosen;
    show();
  }));
  body.append(classBar(data), list);
  show();
  return root;
}
