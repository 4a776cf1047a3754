// Nested blocks as wide as their share: the whole on top, its parts below it.
import {h} from './dom';
import {percent} from './units';

export interface Block { name: string; ns: number; words: string; css: string; below: Block[] }

const kLeastShare = 0.005;  // less is too narrow to be seen
const kLeastNamed = 0.04;   // and less for a name

function draw(one: Block, all: number, parent: number): HTMLElement {
  const share = parent > 0 ? one.ns / parent : 0;
  return h('div', {class: 'part', style: `width: ${(100 * share).toFixed(2)}%`},
           h('div', {class: `bar ${one.css}`, title: `${one.name}\n${one.words}, ${percent(one.ns / all)}`},
             one.ns < kLeastNamed * all ? '' : `${one.name}  ${percent(one.ns / all)}`),
           one.below.length > 0 ? h('div', {class: 'row'}, ...one.below.map(below => draw(below, all, one.ns))) : null);
}

// `title`: of the whole, which takes `ns`.
export function icicle(title: string, ns: number, blocks: Block[]): HTMLElement {
  const shown = blocks.filter(one => one.ns >= kLeastShare * ns);
  const words = shown.map(one => {
    const names: string[] = [];
    for (let at: Block | undefined = one; at !== undefined; at = at.below[0]) names.push(at.name);
    return `${names.join(', in ')} ${percent(one.ns / ns)}`;
  });
  return h('div', {class: 'icicle', role: 'img', 'aria-label': `${title}: ${words.join('; ')}`},
           h('div', {class: 'bar root'}, title), h('div', {class: 'row'}, ...shown.map(one => draw(one, ns, ns))));
}
