// The statistics of steps, as the text report prints them.
import {Data, kIdleParts, kIdleWords, kPartClass, kParts, kPartWords, Part} from './data';
import {h, section} from './dom';
import {selectionWords} from './header';
import {Store} from './selection';
import {duration, percent, plural} from './units';

const kColumns: [string, 'mean' | 'p50' | 'p95' | 'p99' | 'max'][] = [['mean', 'mean'], ['p50', 'p50'], ['p95', 'p95'], ['p99', 'p99'], ['max', 'max']];

// The mean of what is selected, beside the mean of all steps.
class Selected {
  private readonly cells = new Map<'time_ns' | Part, HTMLElement>();
  private readonly head = h('th', {scope: 'col', class: 'selected', hidden: true});

  constructor(private readonly data: Data, private readonly store: Store) { store.follow(() => this.fill()); }

  title(): HTMLElement { return this.head; }
  cell(key: 'time_ns' | Part): HTMLElement {
    const cell = h('td', {class: 'selected', hidden: true});
    this.cells.set(key, cell);
    return cell;
  }

  private fill(): void {
    const {ranks, steps} = this.store.value;
    const chosen = ranks.size > 0 || steps !== null;
    const means = chosen ? this.data.grid?.meanOf(ranks, steps, this.data.report.steps?.warmup_count ?? 0) ?? null : null;
    this.head.hidden = !chosen;
    this.head.textContent = selectionWords(this.data, this.store);
    for (const [key, cell] of this.cells) {
      cell.hidden = !chosen;
      cell.textContent = means === null ? '-' : duration(means[key]);
    }
  }
}

export function stepsTable(data: Data, store: Store): HTMLElement | null {
  const steps = data.report.steps;
  if (!steps) return null;
  const selected = new Selected(data, store);
  const row = (key: 'time_ns' | typeof kParts[number], words: string, css: string): HTMLElement =>
    h('tr', {}, h('th', {scope: 'row'}, css ? h('i', {class: css}) : null, words), selected.cell(key),
      ...kColumns.map(([, column]) => h('td', {'data-path': `steps.${key}.${column}`, 'data-unit': 'ns'}, duration(steps[key][column]))),
      h('td', {}, percent(steps[key].mean / steps.time_ns.mean)));
  const idle = kIdleParts.filter(key => steps.idle[key].mean > 0.0005 * steps.time_ns.mean)
                   .map(key => `${kIdleWords[key]} ${duration(steps.idle[key].mean)}`);
  const phases = steps.phases.filter(phase => phase.time_ns.mean > 0).map(phase => `${phase.name} ${duration(phase.time_ns.mean)}`);
  const facts = [
    plural(steps.count, 'step'), steps.warmup_count > 0 ? `${plural(steps.warmup_count, 'warm-up step')} excluded` : '',
    `boundaries from ${steps.source}, confidence ${steps.confidence.toFixed(2)}`,
    steps.incomplete_count > 0 ? `records missing in ${steps.incomplete_count} of them, which are ${steps.estimated ? 'estimated' : 'excluded'}` : '',
    data.report.communication.pipeline ? `waiting for other stages ${duration(data.report.communication.pipeline.bubble * steps.time_ns.mean)} (the pipeline's bubble, part of exposed communication and idle)` : '',
    idle.length > 0 ? `idle: ${idle.join(', ')}` : '',
    steps.overlap_efficiency !== null ? `overlap efficiency ${percent(steps.overlap_efficiency)}` : '',
    phases.length > 0 ? `phases (${steps.phases[0].source}): ${phases.join(', ')}` : ''];
  const {root, body} = section('step-times', 'Where a step goes');
  body.append(h('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Where a step goes: table'},
             h('table', {id: 'step-statistics'},
               h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'per step'), selected.title(), ...kColumns.map(([words]) => h('th', {scope: 'col'}, words)),
                                h('th', {scope: 'col'}, 'of step'))),
               h('tbody', {}, row('time_ns', 'total', ''), ...kParts.map(part => row(part, kPartWords[part], kPartClass[part]))))),
           h('p', {class: 'note'}, facts.filter(fact => fact !== '').join('; ') + '.'));
  return root;
}
