// The page's colours for canvases: they are defined once, in page.css.

export type Colour = 'ink' | 'soft' | 'line' | 'paper' | 'panel' | 'compute' | 'comm' | 'copy' | 'idle' | 'late' | 'range' | 'select';

const known = new Map<Colour, string>();  // of the theme: a timeline asks for each of its slices

export function colour(name: Colour): string {
  let value = known.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    known.set(name, value);
  }
  return value;
}

// The theme has changed.
export function forgetColours(): void { known.clear(); }

// [red, green, blue] of "#rrggbb".
export function rgb(name: Colour): [number, number, number] {
  const hex = colour(name).replace('#', '');
  const whole = hex.length === 3 ? [...hex].map(c => c + c).join('') : hex;
  return [0, 2, 4].map(i => parseInt(whole.slice(i, i + 2), 16)) as [number, number, number];
}
