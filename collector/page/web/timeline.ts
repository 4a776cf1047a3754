// One step on all ranks: which step, what it shows, and the longest operations as a table for those who
// cannot see the picture.
import {Data, Timeline} from './data';
import {button, h, section, select} from './dom';
import {fetchTimeline, isServed} from './live';
import {saveButton} from './picture_file';
import {Store} from './selection';
import {Settings} from './settings';
import {table} from './table';
import {TimelineView} from './timeline_view';
import {announce} from './tooltip';
import {duration} from './units';

const kKindWords = ['compute', 'communication', 'copy', 'range'];

export function timelineName(data: Data, timeline: Timeline): string {
  const why: string[] = [];
  if (timeline.slowest) why.push('slowest');
  if (timeline.median) why.push('median');
  const numbers = timeline.findings.filter(i => data.report.findings[i].severity !== 'info').map(i => i + 1);
  if (numbers.length > 0) why.push(`finding ${numbers.join(', ')}`);
  // Of the rank whose step is longest: the stages of a pipeline begin theirs at different times.
  const own = timeline.ranks.map(({step_start_ns, step_end_ns}) => (step_end_ns ?? 0) - (step_start_ns ?? 0));
  return `step ${timeline.step}${why.length > 0 ? ` (${why.join('; ')})` : ''}, ${duration(Math.max(...own))}`;
}

function longest(data: Data, timeline: Timeline, settings: Settings): HTMLElement {
  const rows: {rank: string; name: string; kind: string; length: number; start: number}[] = [];
  for (const rank of timeline.ranks) {
    const {slices} = rank;
    const order = slices.length_ns.map((_, i) => i).filter(i => slices.kind[i] !== 3)
                      .sort((a, b) => slices.length_ns[b] - slices.length_ns[a]).slice(0, 10);
    for (const i of order) {
      rows.push({rank: data.rankName(rank.row), name: data.names[slices.name[i]] + (slices.count[i] > 1 ? ` and ${slices.count[i] - 1} more` : ''),
                 kind: kKindWords[slices.kind[i]], length: slices.length_ns[i], start: slices.start_ns[i]});
    }
  }
  return table({
    id: 'longest', label: 'Longest operations of the step', rows, sort: 3, most: 20,
    columns: [{title: 'rank', text: row => row.rank}, {title: 'operation', text: row => row.name, wide: true},
              {title: 'kind', text: row => row.kind},
              {title: 'time', number: row => row.length, text: row => duration(row.length)},
              {title: 'starts after', number: row => row.start, text: row => (row.start < 0 ? '-' : '') + duration(Math.abs(row.start))}]}, settings);
}

export function timeline(data: Data, store: Store): HTMLElement | null {
  if (data.timelines.length === 0) return null;
  const {root, controls, body} = section('timeline', 'One step on all ranks', 'One track for each CUDA stream; NVTX ranges (host time) above. Drag to pan, Ctrl and wheel to zoom.');
  const view = new TimelineView(data, store);
  const names: [string, string][] = data.timelines.map((t, i) => [String(i), timelineName(data, t)]);
  const choice = select('Step', names, String(store.value.timeline), value => store.set({timeline: Number(value)}));
  controls.append(choice, button('+', () => view.zoomBy(2), 'Zoom in'), button('−', () => view.zoomBy(0.5), 'Zoom out'),
                  button('Whole step', () => view.reset()), saveButton(view.frame, 'timeline'));
  const found = h('p', {class: 'note', id: 'timeline-found'});
  const search = h('input', {type: 'search', value: view.searched, 'aria-label': 'Search the names of the timeline'});
  const say = (words: string): void => {
    found.textContent = words;
    announce(words);
  };
  search.addEventListener('input', () => say(view.search(search.value)));
  search.addEventListener('keydown', event => {
    if (event.key === 'Enter' && search.value !== '') say(view.next());
  });
  const missing = h('p', {class: 'note', id: 'timeline-missing', hidden: true});
  const ask = (step: number): void => {
    missing.hidden = false;
    missing.textContent = `Reading step ${step} ...`;
    store.want(step);
    void fetchTimeline(step).then(shown => {
      // The page may have been built anew meanwhile.
      const note = document.getElementById('timeline-missing');
      if (note === null || (shown && store.wantedStep === null)) return;
      note.hidden = false;
      note.textContent = shown ? `No rank has a step ${step} whose records are kept.` : 'Nobody serves the page any more.';
    });
  };
  if (isServed() && data.grid !== null) {
    const any = h('input', {type: 'number', min: data.grid.first, max: data.grid.lastStepOf(data.grid.columns - 1), 'aria-label': 'Show the timeline of any step'});
    any.addEventListener('change', () => { if (any.value !== '') ask(Number(any.value)); });
    controls.append(h('label', {}, h('span', {}, 'Any step'), any));
  }
  controls.append(h('label', {}, h('span', {}, 'Search'), search));
  const list = h('div', {});
  const opened = store.settings.of('longest operations', {open: false});
  const fillList = (): void => {
    if (opened.open) list.replaceChildren(longest(data, data.timelines[store.value.timeline], store.settings));
  };
  const details = h('details', {open: opened.open, ontoggle: () => {
    if (opened.open === details.open) return;
    opened.open = details.open;
    fillList();
  }}, h('summary', {}, 'Longest operations as a table'), list);
  fillList();
  const shown = data.timelines[0].ranks.length;
  body.append(view.legend(), view.frame, found,
              shown < data.report.ranks.length ? h('p', {class: 'note'}, `${shown} of ${data.report.ranks.length} ranks: those that findings name, their neighbours, and a sample of the others.`) : '',
              details);
  body.append(missing);
  // A step among those that are selected, if the page has one.
  const followSteps = (): void => {
    const {steps, timeline: now} = store.value;
    const within = ({step}: {step: number}): boolean => steps === null || (step >= steps[0] && step <= steps[1]);
    const found = within(data.timelines[now]) ? now : data.timelines.findIndex(within);
    missing.hidden = found >= 0;
    if (found < 0 && isServed()) return ask(steps![0]);
    missing.textContent = `The page has none of the selected steps, only ${data.timelines.map(({step}) => step).join(', ')}. gpuprobe trace DIR --steps has any.`;
    if (found >= 0 && found !== now) store.set({timeline: found});
  };
  store.follow((selection, changed) => {
    if (changed.has('steps') && !changed.has('timeline')) followSteps();
    if (!changed.has('timeline')) return;
    missing.hidden = true;
    choice.querySelector('select')!.value = String(selection.timeline);
    found.textContent = view.search(search.value);
    fillList();
  });
  return root;
}
