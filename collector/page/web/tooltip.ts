// One tooltip for all charts. What it says is also reachable by keyboard: charts announce it (announce).
import {h} from './dom';

const box = h('div', {class: 'tooltip', hidden: true});
const live = h('div', {class: 'unseen', 'aria-live': 'polite', role: 'status'});

export function installTooltip(): void { document.body.append(box, live); }

export function showTooltip(x: number, y: number, lines: string[]): void {
  box.replaceChildren(...lines.map((line, i) => h(i === 0 ? 'b' : 'span', {}, line)));
  box.hidden = false;
  const {width, height} = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  box.style.top = `${y + height + 24 > innerHeight ? Math.max(4, y - height - 10) : y + 16}px`;
}

export function hideTooltip(): void { box.hidden = true; }

export function announce(words: string): void { live.textContent = words; }
