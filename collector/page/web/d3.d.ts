// The part of D3 that the page uses: the distribution's packages carry no types.

declare module 'd3-scale' {
  interface Scale {
    (value: number): number;
    invert(value: number): number;
    domain(): number[];
    ticks(count?: number): number[];
    clamp(clamp: boolean): Scale;
    nice(count?: number): Scale;
  }
  export function scaleLinear(domain: [number, number], range: [number, number]): Scale;
  export function scaleLog(domain: [number, number], range: [number, number]): Scale;
}

declare module 'd3-selection' {
  export interface Selection {
    call(f: (selection: any, ...args: any[]) => unknown, ...args: any[]): Selection;
      }
  export function select(element: Element): Selection;
  export let event: any;  // that a listener is called for (D3 5)
}

declare module 'd3-brush' {
  interface Brush {
    (selection: any): void;
    extent(extent: [[number, number], [number, number]]): Brush;
    on(type: string, listener: () => void): Brush;
    move(selection: any, range: [number, number] | null): void;
  }
  export function brushX(): Brush;
}

declare module 'd3-zoom' {
  export interface Transform {k: number; x: number; y: number; rescaleX<S>(scale: S): S; translate(x: number, y: number): Transform; scale(k: number): Transform}
  interface Zoom {
    (selection: any): void;
    scaleExtent(extent: [number, number]): Zoom;
    translateExtent(extent: [[number, number], [number, number]]): Zoom;
    extent(extent: [[number, number], [number, number]]): Zoom;
    filter(filter: () => boolean): Zoom;
    on(type: string, listener: () => void): Zoom;
    transform(selection: any, transform: Transform): void;
    scaleBy(selection: any, k: number): void;
    translateBy(selection: any, x: number, y: number): void;
  }
  export function zoom(): Zoom;
  export const zoomIdentity: Transform;
}

declare module 'd3-shape' {
  interface Line<T> { (data: T[]): string | null; x(f: (d: T, i: number) => number): Line<T>; y(f: (d: T, i: number) => number): Line<T> }
  interface Area<T> {
    (data: T[]): string | null; x(f: (d: T, i: number) => number): Area<T>;
    y0(f: (d: T, i: number) => number): Area<T>; y1(f: (d: T, i: number) => number): Area<T>; curve(curve: unknown): Area<T>;
  }
  export function line<T>(): Line<T>;
  export function area<T>(): Area<T>;
  export const curveStepAfter: unknown;
}
