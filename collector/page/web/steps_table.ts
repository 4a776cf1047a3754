// The statistics of steps, as the text report prints them.
import {Data, kIdleParts, kIdleWords, kPartClass, kParts, kPartWords} from './data';
import {h, section} from './dom';
import {duration, percent, plural} from './units';

const kColumns: [string, 'mean' | 'p50' | 'p95' | 'p99' | 'max'][] = [['mean', 'mean'], ['p50', 'p50'], ['p95', 'p95'], ['p99', 'p99'], ['max', 'max']];

export function stepsTable(data: Data): HTMLElement | null {
  const steps = data.report.steps;
  if (!steps) return null;
  const row = (key: 'time_ns' | typeof kParts[number], words: string, css: string): HTMLElement =>
    h('tr', {}, h('th', {scope: 'row'}, css ? h('i', {class: css}) : null, words),
      ...kColumns.map(([, column]) => h('td', {'data-path': `steps.${key}.${column}`, 'data-unit': 'ns'}, duration(steps[key][column]))),
      h('td', {}, percent(steps[key].mean / steps.time_ns.mean)));
  const idle = kIdleParts.filter(key => steps.idle[key].mean > 0.0005 * steps.time_ns.mean)
                   .map(key => `${kIdleWords[key]} ${duration(steps.idle[key].mean)}`);
  const phases = steps.phases.filter(phase => phase.time_ns.mean > 0).map(phase => `${phase.name} ${duration(phase.time_ns.mean)}`);
  const facts = [
    plural(steps.count, 'step'), steps.warmup_count > 0 ? `${plural(steps.warmup_count, 'warm-up step')} excluded` : '',
    `boundaries from ${steps.source}, confidence ${steps.confidence.toFixed(2)}`,
    steps.incomplete_count > 0 ? `records missing in ${steps.incomplete_count} of them, which are ${steps.estimated ? 'estimated' : 'excluded'}` : '',
    idle.length > 0 ? `idle: ${idle.join(', ')}` : '',
    steps.overlap_efficiency !== null ? `overlap efficiency ${percent(steps.overlap_efficiency)}` : '',
    phases.length > 0 ? `phases (${steps.phases[0].source}): ${phases.join(', ')}` : ''];
  const {root, body} = section('step-times', 'Where a step goes');
  body.append(h('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Where a step goes: table'},
             h('table', {id: 'step-statistics'},
               h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'per step'), ...kColumns.map(([words]) => h('th', {scope: 'col'}, words)),
                                h('th', {scope: 'col'}, 'of step'))),
               h('tbody', {}, row('time_ns', 'total', ''), ...kParts.map(part => row(part, kPartWords[part], kPartClass[part]))))),
           h('p', {class: 'note'}, facts.filter(fact => fact !== '').join('; ') + '.'));
  return root;
}
