// The findings, worst first, each with the picture that shows it. Choosing one selects its ranks and steps in
// all charts.
import {append, h} from './dom';
import {Data, Finding, PictureName} from './data';
import {documentOf} from './document';
import {chosenWords} from './header';
import {hostIcicle} from './host_icicle';
import {pictureOf} from './pictures';
import {Store} from './selection';
import {announce} from './tooltip';

const kMarks: Record<Finding['severity'], string> = {error: '✖', warning: '▲', info: '●'};

function select(data: Data, store: Store, index: number): void {
  const {about} = data.report.findings[index];
  const rows = about.ranks.map(rank => data.rowOfRank(rank)).filter(row => row >= 0);
  let steps: [number, number] | null = null;
  const grid = data.grid;
  if (grid !== null && (about.first_step !== null || about.last_step !== null)) {
    steps = [about.first_step ?? grid.first, about.last_step ?? Infinity];
  }
  const timeline = data.timelines.findIndex(t => t.findings.includes(index));
  store.set({finding: index, ranks: new Set(rows), steps, ...(timeline >= 0 ? {timeline} : {})});
}

// The part of the page that shows most of a finding, by its picture; of others it is that of the steps.
const kSections: Partial<Record<PictureName, string>> = {
  memory: 'memory', leak: 'memory', reserved: 'memory', idle_gpus: 'memory', network: 'bandwidth', buckets: 'bandwidth', exposed: 'collectives',
  compute: 'kernels', compute_by_gpu: 'ranks', gpus: 'conditions', ranks: 'ranks', lifelines: 'conditions', coverage: 'conditions', overhead: 'conditions',
  whole_step: 'step-times', copies: 'step-times'};

function sectionOf(data: Data, index: number): HTMLElement | null {
  const name = data.pictures[index];
  return document.getElementById(name === undefined || name === '' ? 'steps' : kSections[name] ?? 'steps') ?? document.getElementById('steps');
}

// Its document, built when it is opened.
function explanation(data: Data, id: string): HTMLElement | null {
  const markdown = data.documents[id];
  if (!markdown) return null;
  const root = h('details', {class: 'document'}, h('summary', {}, 'What it means, and what to do'));
  root.addEventListener('toggle', () => append(root, documentOf(markdown)), {once: true});
  return root;
}

function card(data: Data, store: Store, index: number): HTMLElement {
  const finding = data.report.findings[index];
  const problem = finding.severity !== 'info';
  const choose = h('button', {type: 'button', class: 'choose', 'aria-pressed': 'false'}, finding.statement);
  const picture = pictureOf(data, index);
  const fine = data.pictures[index] === 'whole_step';
  const root = h('article', {class: `finding ${fine ? 'fine' : finding.severity}`, 'data-id': finding.id},
                 h('span', {class: 'mark', 'aria-hidden': 'true'}, fine ? '✓' : kMarks[finding.severity]),
                 h('div', {class: 'words'},
                   h('h3', {}, choose),
                   finding.evidence ? h('p', {}, finding.evidence) : null,
                   hostIcicle(data, index),
                   finding.advice ? h('p', {class: 'advice'}, '→ ', finding.advice) : null,
                   h('p', {class: 'id'}, problem ? `${finding.severity}: ` : '', h('code', {}, finding.id)),
                   explanation(data, finding.id)),
                 picture ? h('div', {class: 'picture'}, picture) : null);
  choose.addEventListener('click', () => {
    if (store.value.finding === index) {
      store.set({finding: null, ranks: new Set(), steps: null});
      announce('Selection cleared');
      return;
    }
    select(data, store, index);
    announce(`Selected: ${chosenWords(data, store)}`);
    sectionOf(data, index)?.scrollIntoView({behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'});
  });
  store.follow(({finding: chosen}) => {
    choose.setAttribute('aria-pressed', String(chosen === index));
    root.classList.toggle('selected', chosen === index);
  });
  return root;
}

export function findings(data: Data, store: Store): HTMLElement {
  const root = h('section', {id: 'findings', 'aria-labelledby': 'findings-title'},
                 h('h2', {id: 'findings-title', class: 'unseen'}, 'Findings'));
  append(root, data.report.findings.map((_, index) => card(data, store, index)));
  store.follow(({finding}) => {
    const target = finding === null ? null : sectionOf(data, finding);
    for (const other of document.querySelectorAll('section.of-finding')) other.classList.toggle('of-finding', other === target);
    target?.classList.add('of-finding');
  });
  return root;
}
