// Message size against bus bandwidth: what the collectives reached, the fitted line T = alpha + n / beta, and
// the peak of the link.
import {scaleLinear, scaleLog} from 'd3-scale';
import {line} from 'd3-shape';
import {bottomAxis, leftAxis} from './chart';
import {isChosen, seenCalls, windowWords} from './chosen_work';
import {Collective, Data, LinkModel} from './data';
import {h, responsive, s, section, select, text} from './dom';
import {saveButton} from './picture_file';
import {Store} from './selection';
import {hideTooltip, showTooltip} from './tooltip';
import {bytes, count, duration, percent, plural, rate, shortComm} from './units';

const kHeight = 200;
const kLeft = 58;
const kReach = 24;  // of the mouse

interface Group { key: string; words: string; calls: Collective[]; places: number[]; model: LinkModel | null }

function groupsOf(data: Data): Group[] {
  const groups = new Map<string, Group>();
  for (const [place, call] of data.report.collectives.entries()) {
    if (!call.size_bytes || (call.busbw_gbytes_per_s === null && !call.transfer_busbw_gbytes_per_s)) continue;
    const key = `${call.op} ${call.comm}`;
    if (!groups.has(key)) {
      const model = data.report.communication.alpha_beta.find(m => m.op === call.op && m.comm === call.comm) ?? null;
      groups.set(key, {key, words: `${call.op} on ${call.comm_name ?? shortComm(call.comm)}, ${plural(call.comm_ranks ?? 0, 'rank')}`, calls: [], places: [], model});
    }
    groups.get(key)!.calls.push(call);
    groups.get(key)!.places.push(place);
  }
  const time = (group: Group): number => group.calls.reduce((sum, call) => sum + call.time_ns.total, 0);
  return [...groups.values()].sort((a, b) => time(b) - time(a)).slice(0, 64);
}

// Bus bandwidth of the fitted line: bus bytes are a fixed multiple of the size, which the fit itself shows.
function fitted(model: LinkModel): (size: number) => number {
  const seen = model.sizes.filter(size => size.predicted_ns > model.alpha_ns && size.size_bytes > 0);
  const last = seen[seen.length - 1];
  const factor = last ? (last.predicted_ns - model.alpha_ns) * model.beta_gbytes_per_s / last.size_bytes : 1;
  return size => factor * size / (model.alpha_ns + factor * size / model.beta_gbytes_per_s);
}

function draw(data: Data, store: Store, group: Group, width: number): SVGSVGElement {
  const peak: number | null = data.report.communication.link_peak_gbytes_per_s;
  const reference: number | null = peak === null ? data.report.communication.network?.reference_gbytes_per_s ?? null : null;
  const limit = peak ?? reference;
  const sizes = group.calls.map(call => call.size_bytes!);
  const least = Math.min(...sizes) / 4;
  const most = Math.max(...sizes) * 4;
  const best = Math.max(limit ?? 0, ...group.calls.flatMap(call => [call.busbw_gbytes_per_s ?? 0, call.transfer_busbw_gbytes_per_s ?? 0]),
                        ...group.places.flatMap(place => {
                          const of = seenCalls(data, store, place);
                          return [of.busbw ?? 0, of.transfer_busbw ?? 0];
                        }));
  const x = scaleLog([least, most], [kLeft, width - 8]);
  const y = scaleLinear([0, best * 1.1 || 1], [kHeight, 10]);
  const powers: number[] = [];
  for (let power = 2 ** Math.ceil(Math.log2(least)); power <= most; power *= width < 420 ? 16 : 4) powers.push(power);
  const root = s('svg', {width, height: kHeight + 22, role: 'img', 'aria-label':
      `${group.words}: ${group.calls.map((call, i) => {
        const of = seenCalls(data, store, group.places[i]!);
        return of.calls === 0 ? `${bytes(call.size_bytes!)} not in the selection` : `${bytes(call.size_bytes!)} reach ${rate(of.transfer_busbw ?? of.busbw ?? 0)}`;
      }).join(', ')}`},
                 ...leftAxis(y, kLeft, width, value => rate(value)), ...bottomAxis(powers, x, kHeight + 17, bytes));
  if (limit !== null) {
    root.append(s('line', {x1: kLeft, x2: width, y1: y(limit), y2: y(limit), class: 'limit'}),
                text(width - 4, y(limit) - 4, `${peak !== null ? 'link peak' : 'reference design (assumed)'} ${rate(limit)}`, 'end'));
  }
  if (group.model !== null) {
    const of = fitted(group.model);
    const points = Array.from({length: 65}, (_, i) => least * (most / least) ** (i / 64));
    root.append(s('path', {d: line<number>().x(size => x(size)).y(size => y(of(size)))(points), class: 'fit'}));
  }
  const chosen = isChosen(data, store);
  const points: {at: number; lines: string[]}[] = [];
  group.calls.forEach((call, i) => {
    const of = seenCalls(data, store, group.places[i]!);
    if (of.calls === 0) return;
    const title = `${bytes(call.size_bytes!)}, ${plural(of.calls, 'call')}${chosen ? ' of the selection' : ''}`;
    const calls = 3 + Math.min(4, Math.log10(of.calls + 1));
    if (of.busbw !== null) root.append(s('circle', {cx: x(call.size_bytes!), cy: y(of.busbw), r: calls, class: 'with-wait'}));
    if (of.transfer_busbw) root.append(s('circle', {cx: x(call.size_bytes!), cy: y(of.transfer_busbw), r: calls, class: 'comm'}));
    points.push({at: x(call.size_bytes!), lines: [title, ...(of.busbw === null ? [] : [`${rate(of.busbw)} with waiting`]), ...(of.transfer_busbw ? [`${rate(of.transfer_busbw)} without waiting`] : []),
                                                  ...(group.model === null ? [] : [`the fitted line says ${rate(fitted(group.model)(call.size_bytes!))}`])]});
  });
  root.addEventListener('mousemove', event => {
    const at = event.clientX - root.getBoundingClientRect().left;
    const nearest = points.reduce((best: typeof points[number] | null, point) => best === null || Math.abs(point.at - at) < Math.abs(best.at - at) ? point : best, null);
    if (nearest === null || Math.abs(nearest.at - at) > kReach) return hideTooltip();
    showTooltip(event.clientX, event.clientY, nearest.lines);
  });
  root.addEventListener('mouseleave', hideTooltip);
  return root;
}

function facts(data: Data, group: Group): string {
  const calls = `${count(group.calls.reduce((sum, call) => sum + call.calls, 0))} calls of ${plural(group.calls.length, 'size')}`;
  const peak = data.report.communication.link_peak_gbytes_per_s;
  const limit = peak !== null ? `; link peak ${rate(peak)} (${data.report.communication.link_peak_source})` : '; the peak of the link is not known: --link-peak gives it';
  const m = group.model;
  if (m === null) return `${calls}; too few sizes for a fitted line${limit}.`;
  const seen = (value: string, error: string, is_seen: boolean) => is_seen ? `${value} ± ${error}` : `${value} (extrapolated)`;
  const latency = m.half_bandwidth_bytes === null ? 'not seen' : seen(duration(m.alpha_ns), duration(m.alpha_error_ns), m.latency_seen);
  const rate_of = seen(rate(m.beta_gbytes_per_s), rate(m.beta_error_gbytes_per_s), m.bandwidth_seen);
  const errors = `fit off by ${percent(m.mean_relative_error)}, at most ${percent(m.worst_relative_error)}`;
  return `${calls}; fit: latency ${latency}, bandwidth ${rate_of}; ${errors}${limit}.`;
}

export function bandwidth(data: Data, store: Store): HTMLElement | null {
  const groups = groupsOf(data);
  if (groups.length === 0) return null;
  const {root, controls, body} = section('bandwidth', 'Bus bandwidth by message size');
  const view = store.settings.of<{collective: string | null}>('bandwidth', {collective: null});
  let chosen = groups.find(group => group.key === view.collective) ?? groups[0];
  const note = h('p', {class: 'note'}, facts(data, chosen));
  const plot = h('div', {class: 'plot'});
  controls.append(select('Collective', groups.map((group): [string, string] => [group.key, group.words]), chosen.key, key => {
    view.collective = key;
    chosen = groups.find(group => group.key === key)!;
    note.textContent = facts(data, chosen);
    redraw();
  }));
  controls.append(saveButton(plot, 'bandwidth'));
  body.append(h('p', {class: 'legend'}, h('span', {}, h('i', {class: 'comm dot'}), 'transfer, without waiting'),
                h('span', {}, h('i', {class: 'ring'}), 'with waiting for late ranks'),
                chosen.model !== null ? h('span', {}, h('i', {class: 'dash'}), 'fitted line') : null), plot, note);
  const window = h('p', {class: 'note', hidden: true});
  body.append(window);
  const redraw = responsive(plot, width => plot.replaceChildren(draw(data, store, chosen, width)));
  const follow = (): void => {
    window.hidden = !isChosen(data, store);
    window.textContent = window.hidden ? '' : `${windowWords(data, store)} Fit and limit are of the run.`;
  };
  follow();
  store.follow((_, changed) => {
    if (data.work === null || (!changed.has('ranks') && !changed.has('steps'))) return;
    follow();
    redraw();
  });
  return root;
}
