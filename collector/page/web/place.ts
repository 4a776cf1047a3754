// Where the viewer is on the page, noted before it is built anew and found again afterwards: the part at the top of
// the screen, tables scrolled sideways, and the element that has the keyboard.

const kFocusable = 'a[href], button, select, input, summary, [tabindex]';

interface Focus { part: string; place: number; tag: string; value: string | null; caret: [number, number] | null }
export interface Place { top: {part: string; offset: number} | null; sideways: Map<string, number>; focus: Focus | null }

// Findings come and go above the charts: a finding and a section are both known by name.
function parts(): HTMLElement[] { return [...document.querySelectorAll<HTMLElement>('.finding, main section[id]')]; }
function nameOf(part: HTMLElement): string { return part.dataset.id ?? part.id; }
function focusables(part: Element): HTMLElement[] { return [...part.querySelectorAll<HTMLElement>(kFocusable)]; }

// The last part that begins above the middle of the screen, unless the page is at its top.
function topPart(): Place['top'] {
  if (window.scrollY === 0) return null;
  const above = parts().filter(part => part.getBoundingClientRect().top < innerHeight / 2);
  const part = above[above.length - 1];
  return part === undefined ? null : {part: nameOf(part), offset: part.getBoundingClientRect().top};
}

function focusOf(element: Element | null): Focus | null {
  const part = element?.closest<HTMLElement>('.finding, main section[id], header');
  if (!element || !part) return null;
  const box = element instanceof HTMLInputElement ? element : null;
  const caret: [number, number] | null = box?.type === 'search' ? [box.selectionStart ?? 0, box.selectionEnd ?? 0] : null;
  return {part: nameOf(part), place: focusables(part).indexOf(element as HTMLElement), tag: element.tagName, value: box?.value ?? null, caret};
}

function scrolledTables(): HTMLElement[] { return [...document.querySelectorAll<HTMLElement>('.wide')]; }
function tableName(wide: HTMLElement): string { return wide.querySelector('table')?.id ?? ''; }

export function placeNow(): Place {
  return {top: topPart(), focus: focusOf(document.activeElement),
          sideways: new Map(scrolledTables().filter(wide => wide.scrollLeft > 0).map(wide => [tableName(wide), wide.scrollLeft]))};
}

export function returnTo({top, sideways, focus}: Place): void {
  for (const wide of scrolledTables()) wide.scrollLeft = sideways.get(tableName(wide)) ?? 0;
  const anchor = top === null ? undefined : parts().find(part => nameOf(part) === top.part);
  if (top !== null && anchor !== undefined)
    window.scrollBy({top: anchor.getBoundingClientRect().top - top.offset, behavior: 'instant' as ScrollBehavior});
  if (focus === null) return;
  const part = focus.part === '' ? document.querySelector('header') : parts().find(other => nameOf(other) === focus.part);
  const element = part ? focusables(part)[focus.place] : undefined;
  if (element?.tagName !== focus.tag) return;
  element.focus({preventScroll: true});
  if (!(element instanceof HTMLInputElement)) return;
  if (focus.value !== null) element.value = focus.value;  // typed, and not yet entered
  if (focus.caret !== null) element.setSelectionRange(...focus.caret);
}
