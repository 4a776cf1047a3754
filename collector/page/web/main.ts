// Builds the page from the two documents in it, or from those that a collector serves.
import {selectFromAddress, writeAddress} from './address';
import {bandwidth} from './bandwidth';
import {calls} from './calls';
import {showComparison} from './compare';
import {conditions} from './conditions';
import {Data, embedded} from './data';
import {append, drawNow, forgetDrawings, h, redrawAll} from './dom';
import {findings} from './findings';
import {watchHands} from './hands';
import {header} from './header';
import {heatMap} from './heat_map';
import {kernels} from './kernels';
import {follow} from './live';
import {memory} from './memory';
import {placeNow, returnTo} from './place';
import {Store} from './selection';
import {stepsChart} from './steps_chart';
import {stepsTable} from './steps_table';
import {collectives, communicators, gpus, phases, ranks} from './tables';
import {timeline} from './timeline';
import {installTooltip} from './tooltip';

function mainOf(data: Data, store: Store): HTMLElement {
  const sections = [
    findings(data, store), calls(data, store), stepsChart(data, store), h('div', {class: 'two'}),
    stepsTable(data, store), h('div', {class: 'two'}), kernels(data, store), ranks(data, store), gpus(data, store), collectives(data, store),
    phases(data, store), communicators(data, store), conditions(data)];
  append(sections[3]!, [heatMap(data, store), timeline(data, store)]);
  append(sections[5]!, [bandwidth(data, store), memory(data, store)]);
  const main = h('main', {id: 'main', tabindex: -1});
  append(main, sections);
  return main;
}

// Shows `data`. A page that is there already is replaced, and what the viewer did to it stays: `store` has the
// selection and the settings of each part, and the place on the page is found again. `line`: for the header.
function show(data: Data, store: Store, line: HTMLElement | null): void {
  const before = document.getElementById('main');
  const place = placeNow();
  store.forgetListeners();
  forgetDrawings();
  const top = header(data, store, line);
  const main = mainOf(data, store);
  document.title = `${top.querySelector('h1')!.textContent} - gpuprobe`;
  if (before === null) {
    document.body.prepend(h('a', {href: '#main', class: 'skip'}, 'Skip to the findings'), top, main);
  } else {
    document.querySelector('header')!.replaceWith(top);
    before.replaceWith(main);
  }
  store.set({});
  store.follow(() => writeAddress(data, store));
  drawNow();
  if (before !== null) returnTo(place);
  document.documentElement.dataset.version = data.version;
  document.documentElement.dataset.ready = 'true';
}

function start(): void {
  installTooltip();
  document.addEventListener('themechange', redrawAll);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);
  const store = new Store();
  document.addEventListener('themechange', () => store.set({}));  // it is in the address, too
  document.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || event.defaultPrevented || event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
    store.set({finding: null, ranks: new Set(), steps: null});
  });
  if (document.documentElement.dataset.live === undefined) {
    const data = embedded();
    store.begin(data);
    selectFromAddress(data, store);
    show(data, store, null);
    addEventListener('hashchange', () => selectFromAddress(data, store));
    return;
  }
  watchHands();
  let shown: Data | null = null;
  follow((data, line) => {
    if (shown !== null) store.carry(shown, data);
    else {
      store.begin(data);
      selectFromAddress(data, store);
    }
    shown = data;
    show(data, store, line);
  });
}

if (document.documentElement.dataset.comparison === undefined) start();
else showComparison();
