// Builds the page from the two documents in it.
import {bandwidth} from './bandwidth';
import {conditions} from './conditions';
import {load} from './data';
import {append, h, redrawAll} from './dom';
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

function build(): void {
  const data = load();
  const store = new Store();
  const top = header(data, store);
  const sections = [
    findings(data, store), stepsChart(data, store), h('div', {class: 'two'}),
    stepsTable(data), h('div', {class: 'two'}), kernels(data), ranks(data, store), collectives(data), phases(data), communicators(data), conditions(data)];
  append(sections[2]!, [heatMap(data, store), timeline(data, store)]);
  append(sections[4]!, [bandwidth(data), memory(data, store)]);
  const main = h('main', {id: 'main', tabindex: -1});
  append(main, sections);
  document.title = `${top.querySelector('h1')!.textContent} - gpuprobe`;
  document.body.prepend(h('a', {href: '#main', class: 'skip'}, 'Skip to the findings'), top, main);
  installTooltip();
  document.addEventListener('themechange', redrawAll);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);
  document.documentElement.dataset.ready = 'true';
}

build();
