// The live part of a page that a collector serves: a status line for the running job, and new documents as
// they are made.
import {fetched, Data} from './data';
import {h} from './dom';
import {handsFree} from './hands';
import {duration, plural} from './units';

interface Status { steps: number; step: {total_ns: number} | null; hangs: string[]; idle_ns: number }

const kLongIdleNs = 5e9;

// One line for the header; it outlives the header.
class LiveLine {
  readonly root = h('span', {id: 'live', hidden: true});
  private over = false;

  status({steps, step, hangs, idle_ns}: Status): void {
    if (this.over) return;
    const words = steps > 0 ? [plural(steps, 'step') + ' so far'] : [];
    if (step !== null) words.push(`${duration(step.total_ns)} now`);
    if (hangs.length > 0) words.push(plural(hangs.length, 'hang'));
    else if (idle_ns > kLongIdleNs) words.push(`no GPU work for ${duration(idle_ns)}`);
    this.say(hangs.length > 0 ? 'stuck' : 'running', `Live: ${words.join(', ') || 'no steps yet'}`);
  }
  lost(): void { if (!this.over) this.say('stuck', 'The collector does not answer; trying again ...'); }
  // Ignores further status updates; only the end is still shown.
  hush(): void { this.over = true; }
  // A run that was over from the start needs no line.
  end(seenRunning: boolean, complete: boolean): void {
    if (!complete) this.say('stuck', 'The run is over; its last numbers did not arrive: see the report in the run directory');
    else if (seenRunning) this.say('over', 'The run is over');
  }
  private say(css: string, words: string): void {
    this.root.className = css;
    this.root.textContent = words;
    this.root.hidden = false;
  }
}

let refreshNow: (() => Promise<boolean>) | null = null;

// Whether somebody serves the page, who can show any step.
export function isServed(): boolean { return refreshNow !== null; }

// Asks for the timeline of a step. Resolves when the page has newer documents; false: nobody answers.
export async function fetchTimeline(step: number): Promise<boolean> {
  const answer = await fetch(`/api/timeline?step=${step}`).catch(() => null);
  return answer !== null && answer.ok && refreshNow !== null && refreshNow();
}

// Follows the collector's events. `show` gets the newest documents, one set at a time.
export function follow(show: (data: Data, line: HTMLElement) => void): void {
  const line = new LiveLine();
  const waiting = h('p', {role: 'status', class: 'waiting'}, 'Waiting for the first process ...');
  document.body.prepend(waiting);
  let running: Promise<boolean> | null = null;
  let again = false;
  let live = false;  // the page has seen the run running
  const fetchAll = async (): Promise<boolean> => {
    let newest = false;
    do {
      await handsFree();
      again = false;
      const data = await fetched().catch(() => null);  // fails if the collector has gone
      newest = data !== null;
      if (data === null) continue;
      await handsFree();
      waiting.remove();
      show(data, line.root);
    } while (again);
    running = null;
    return newest;
  };
  // Resolves to true once the newest documents are shown, to false if they cannot be fetched.
  const refresh = (): Promise<boolean> => {
    again = running !== null;
    return running ??= fetchAll();
  };
  refreshNow = refresh;
  const events = new EventSource('/events');
  let statuses = 0;
  events.addEventListener('status', event => {
    live = ++statuses > 1;
    if (live) line.status(JSON.parse(event.data));
  });
  events.addEventListener('documents', () => { void refresh(); });
  events.addEventListener('error', () => line.lost());
  events.addEventListener('end', () => {
    line.hush();
    void refresh().then(newest => {  // show the last numbers before the end
      line.end(live, newest);
      events.close();
    });
  });
}
