// Frames for small charts: axes with ticks in words.
import {s, text} from './dom';

type Scale = ((value: number) => number) & {ticks(count?: number): number[]};

// Zero needs no unit.
function label(value: number, words: (value: number) => string): string { return value === 0 ? '0' : words(value); }

export function leftAxis(y: Scale, left: number, right: number, words: (value: number) => string, ticks = 5): SVGElement[] {
  const out: SVGElement[] = [];
  for (const tick of y.ticks(ticks)) {
    out.push(s('line', {x1: left, x2: right, y1: y(tick), y2: y(tick), class: 'gridline'}),
             text(left - 6, y(tick) + 4, label(tick, words), 'end'));
  }
  return out;
}

const kLetterWidth = 6.5;  // of the charts' font, about

// The first and the last are always shown; of those between, what has room.
export function bottomAxis(values: number[], x: (value: number) => number, y: number, words: (value: number) => string): SVGElement[] {
  const labels = values.map((value, i) => {
    const shown = label(value, words), width = shown.length * kLetterWidth;
    const anchor: 'start' | 'middle' | 'end' = i === 0 ? 'start' : i === values.length - 1 ? 'end' : 'middle';
    const from = x(value) - (anchor === 'start' ? 0 : anchor === 'end' ? width : width / 2);
    return {value, shown, anchor, from, to: from + width};
  });
  const last = labels[labels.length - 1]!;
  let free = -Infinity;
  const kept = labels.filter(each => {
    if (each !== last && (each.from < free || (each !== labels[0] && each.to + kLetterWidth > last.from))) return false;
    free = each.to + kLetterWidth;
    return true;
  });
  return kept.map(each => text(x(each.value), y, each.shown, each.anchor));
}
