// What is selected, in the page's address, so that a link shows what the sender saw, and a reload what was there:
// #steps=225-299&ranks=1,7&finding=straggler-slow-gpu&timeline=252&theme=dark
import {Data} from './data';
import {Selection, Store} from './selection';

function parsed(): URLSearchParams | null {
  const words = location.hash.slice(1);
  return words.includes('=') ? new URLSearchParams(words) : null;  // else it is a place on the page
}

function stepsOf(words: string | null): [number, number] | null {
  const match = /^(\d+)-(\d+)$/.exec(words ?? '');
  return match === null ? null : [Number(match[1]), Number(match[2])];
}

// Before the page is built. What the page does not have is left out.
export function selectFromAddress(data: Data, store: Store): void {
  const address = parsed();
  if (address === null) return;
  const change: Partial<Selection> = {};
  const rows = (address.get('ranks') ?? '').split(',').map(name => data.rowOfName(name)).filter(row => row >= 0);
  if (rows.length > 0) change.ranks = new Set(rows);
  const steps = stepsOf(address.get('steps'));
  if (steps !== null && data.grid !== null) change.steps = steps;
  const finding = data.report.findings.findIndex(({id}) => id === address.get('finding'));
  if (finding >= 0) change.finding = finding;
  const timeline = data.timelines.findIndex(({step}) => String(step) === address.get('timeline'));
  if (timeline >= 0) change.timeline = timeline;
  const theme = address.get('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  store.set(change);
}

export function writeAddress(data: Data, {value, chosenTimeline}: Store): void {
  const words: string[] = [];
  if (value.steps !== null) {
    const last = data.grid !== null ? data.grid.lastStepOf(data.grid.columns - 1) : value.steps[1];
    words.push(`steps=${value.steps[0]}-${Math.min(value.steps[1], last)}`);
  }
  if (value.ranks.size > 0) words.push(`ranks=${[...value.ranks].map(row => encodeURIComponent(data.shortName(row))).join(',')}`);
  if (value.finding !== null) words.push(`finding=${data.report.findings[value.finding].id}`);
  if (chosenTimeline !== null && data.timelines[chosenTimeline]) words.push(`timeline=${data.timelines[chosenTimeline].step}`);
  const theme = document.documentElement.dataset.theme;
  if (theme !== undefined) words.push(`theme=${theme}`);
  const address = words.length > 0 ? `#${words.join('&')}` : '';
  if (address === location.hash || (address === '' && parsed() === null)) return;
  try { history.replaceState(null, '', address === '' ? location.pathname + location.search : address); } catch { /* a page without an address */ }
}
