// Nested blocks as wide as their share: the whole on top, its parts below it.
import {h} from './dom';
import {percent} from './units';

export interface Block { name: string; ns: number; words: string; css: string; below: Block[] }

const kLeastShare = 0.005;  // less is too narrow to be seen
const kLeastNamed = 0.04;   // and less for a name

// `parent`: what is as wide as the row. Parts that ran at the same time may add up to more than the whole: then they share its width.
function row(blocks: Block[], all: number, parent: number): HTMLElement {
  const wide = Math.max(parent, blocks.reduce((sum, one) => sum + one.ns, 0));
  return h('div', {class: 'row'}, ...blocks.map(one => draw(one, all, wide)));
}

function draw(one: Block, all: number, wide: number): HTMLElement {
  const share = wide > 0 ? one.ns / wide : 0;
  return h('div', {class: 'part', style: `width: ${(100 * share).toFixed(2)}%`},
           h('div', {class: `bar ${one.css}`, title: `${one.name}\n${one.words}, ${percent(one.ns / all)}`},
             one.ns < kLeastNamed * all ? '' : `${one.name}  ${percent(one.ns / all)}`),
           one.below.length > 0 ? row(one.below, all, one.ns) : null);
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
           h('div', {class: 'bar root'}, title), row(shown, ns, ns));
}
