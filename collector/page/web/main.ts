// Builds the page from the two documents in it.
import {bandwidth} from './bandwidth';
import {conditions} from './conditions';
import {Data, embedded, fetched} from './data';
import {append, forgetDrawings, h, redrawAll} from './dom';
import {findings} from './findings';
import {header} from './header';
import {heatMap} from './heat_map';
import {kernels} from './kernels';
import {memory} from './memory';
import {Store} from './selection';
import {stepsChart} from './steps_chart';
import {stepsTable} from './steps_table';
import {collectives, communicators, phases, ranks} from './tables';
import {timeline} from './timeline';
import {installTooltip} from './tooltip';

// Builds everything from `data`. What is selected in `store` stays selected; a page that is there already is replaced.
function build(data: Data, store: Store): void {
  const before = document.getElementById('main');
  const place = window.scrollY;
  const focused = document.activeElement?.id;
  store.forgetListeners();
  forgetDrawings();
  const top = header(data, store);
  const sections = [
    findings(data, store), stepsChart(data, store), h('div', {class: 'two'}),
    stepsTable(data), h('div', {class: 'two'}), kernels(data), ranks(data, store), collectives(data), phases(data), communicators(data), conditions(data)];
  append(sections[2]!, [heatMap(data, store), timeline(data, store)]);
  append(sections[4]!, [bandwidth(data), memory(data, store)]);
  const main = h('main', {id: 'main', tabindex: -1});
  append(main, sections);
  document.title = `${top.querySelector('h1')!.textContent} - gpuprobe`;
  if (before === null) {
    document.body.prepend(h('a', {href: '#main', class: 'skip'}, 'Skip to the findings'), top, main);
    installTooltip();
  } else {
    main.style.minHeight = `${before.offsetHeight}px`;
    document.querySelector('header')!.replaceWith(top);
    before.replaceWith(main);
    window.scrollTo({top: place, behavior: 'instant' as ScrollBehavior});
    if (focused) document.getElementById(focused)?.focus({preventScroll: true});
  }
  store.set({});
  if (before !== null) return;
  document.addEventListener('themechange', redrawAll);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);
  document.documentElement.dataset.ready = 'true';
}

// A page that a collector serves: follows its events, and fetches the documents whenever there are new ones.
function follow(): void {
  const store = new Store();
  const waiting = h('p', {role: 'status'}, 'Waiting for the first process ...');
  document.body.prepend(waiting);
  let shown: Data | null = null;
  let running: Promise<void> | null = null;
  let again = false;
  const rebuild = async (): Promise<void> => {
    do {
      again = false;
      const data = await fetched().catch(() => null);  // the collector has gone
      if (data === null) continue;
      waiting.remove();
      if (shown !== null) store.carry(shown, data);
      shown = data;
      build(data, store);
    } while (again);
    running = null;
  };
  // Settles when what there is now is shown.
  const refresh = (): Promise<void> => {
    again = running !== null;
    return running ??= rebuild();
  };
  const events = new EventSource('/events');
  events.addEventListener('documents', () => { void refresh(); });
  events.addEventListener('end', () => { void refresh().then(() => events.close()); });
}

if (document.documentElement.dataset.live === undefined) build(embedded(), new Store());
else follow();
