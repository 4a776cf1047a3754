// Whether the viewer is in the middle of something that building the page anew would break: a drag, an open list, text
// that is being marked. Newer data then wait, but not forever.

const kMostMs = 10_000;
const kPollMs = 100;

let pressed = false;
let listOpen = false;

export function watchHands(): void {
  addEventListener('pointerdown', event => {
    pressed = true;
    listOpen = event.target instanceof HTMLSelectElement && !listOpen;
  }, true);
  for (const name of ['pointerup', 'pointercancel', 'blur']) addEventListener(name, () => { pressed = false; });
  for (const name of ['change', 'keydown', 'focusout']) addEventListener(name, () => { listOpen = false; }, true);
}

function busy(): boolean {
  const marked = getSelection();
  return pressed || listOpen || (marked !== null && marked.type === 'Range');
}

// Resolves when the viewer is not in the middle of anything.
export async function handsFree(): Promise<void> {
  const until = performance.now() + kMostMs;
  while (busy() && performance.now() < until) await new Promise(resolve => setTimeout(resolve, kPollMs));
}
