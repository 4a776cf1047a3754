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

export function bottomAxis(values: number[], x: (value: number) => number, y: number, words: (value: number) => string): SVGElement[] {
  return values.map((value, i) =>
    text(x(value), y, label(value, words), i === 0 ? 'start' : i === values.length - 1 ? 'end' : 'middle'));
}
