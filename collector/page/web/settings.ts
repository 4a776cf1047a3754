// What the viewer has set on the parts of the page: zoom, sorting, search, which entry of a list.
//
// A part asks for its settings when it is built and changes them in place, so that they outlive the part: the
// page of a running job is built anew whenever there are newer data. Ranks are noted by their key and steps by
// their number, because rows and columns move.

export class Settings {
  private readonly parts = new Map<string, object>();

  // Those of `part`; the first time, `fresh`.
  of<T extends object>(part: string, fresh: T): T {
    if (!this.parts.has(part)) this.parts.set(part, fresh);
    return this.parts.get(part) as T;
  }
}
