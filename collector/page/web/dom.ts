// Makes elements: everything on the page is built with these few functions, and text is never parsed as HTML.

import {forgetColours} from './colours';

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

const kSvg = 'http://www.w3.org/2000/svg';

function fill(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === 'number' ? String(child) : child);
  }
}

// h('p', {class: 'soft', onclick: f}, 'text')
export function h<K extends keyof HTMLElementTagNameMap>(
    tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

// The same for SVG.
export function s<K extends keyof SVGElementTagNameMap>(
    tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  const element = document.createElementNS(kSvg, tag) as SVGElementTagNameMap[K];
  fill(element, attributes, children);
  return element;
}

export function rect(x: number, y: number, width: number, height: number, css: string,
                     title?: string): SVGRectElement {
  return s('rect', {x: x.toFixed(2), y: y.toFixed(2), width: Math.max(width, 0).toFixed(2),
                    height: Math.max(height, 0).toFixed(2), class: css},
           title ? s('title', {}, title) : null);
}

export function text(x: number, y: number, content: string, anchor = 'start', css = ''): SVGTextElement {
  return s('text', {x: x.toFixed(1), y: y.toFixed(1), 'text-anchor': anchor, class: css || null}, content);
}

// A section with a heading, room for its controls, and one sentence that says how to read it.
export interface Section { root: HTMLElement; controls: HTMLElement; body: HTMLElement }
export function section(id: string, title: string, hint = ''): Section {
  const controls = h('div', {class: 'controls'});
  const body = h('div', {class: 'body'});
  const root = h('section', {id, 'aria-labelledby': `${id}-title`},
                 h('div', {class: 'head'}, h('h2', {id: `${id}-title`}, title), controls),
                 hint ? h('p', {class: 'hint'}, hint) : null, body);
  return {root, controls, body};
}

export function select(label: string, options: [string, string][], value: string,
                       choose: (value: string) => void): HTMLLabelElement {
  const box: HTMLSelectElement = h('select', {onchange: () => choose(box.value)},
                ...options.map(([key, words]) => h('option', {value: key, selected: key === value}, words)));
  return h('label', {}, h('span', {}, label), box);
}

export function button(words: string, press: () => void, label?: string): HTMLButtonElement {
  return h('button', {type: 'button', onclick: press, 'aria-label': label ?? null, title: label ?? null}, words);
}

interface Drawing { fit: () => void; redraw: () => void }
let drawings: Drawing[] = [];

// The page is built anew: what was drawn before is gone.
export function forgetDrawings(): void { drawings = []; }

// Calls draw(width) whenever the width changes, and on redrawAll. Returns a function that draws again at the
// same width.
export function responsive(element: HTMLElement, draw: (width: number) => void): () => void {
  let width = 0;
  const redraw = () => { if (width > 0) draw(width); };
  const fit = (): void => {
    const now = Math.floor(element.getBoundingClientRect().width);
    if (now === width || now === 0) return;
    width = now;
    draw(width);
  };
  new ResizeObserver(fit).observe(element);
  drawings.push({fit, redraw});
  return redraw;
}

// Draws what has just been put on the page without waiting for its first layout, so that the page has its height.
export function drawNow(): void { for (const {fit} of drawings) fit(); }

// For colours that a canvas has drawn.
export function redrawAll(): void {
  forgetColours();
  for (const {redraw} of drawings) redraw();
}
