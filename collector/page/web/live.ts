// A page that a collector serves: what the job does now, and newer documents whenever there are some.
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
  // Nothing but the end is news from now on.
  hush(): void { this.over = true; }
  // Of a run that was over from the start nothing needs to be said.
  end(seenRunning: boolean): void {
    if (seenRunning) this.say('over', 'The run is over');
  }
  private say(css: string, words: string): void {
    this.root.className = css;
    this.root.textContent = words;
    this.root.hidden = false;
  }
}

// Follows the collector's events. `show` gets the newest documents, one set at a time.
export function follow(show: (data: Data, line: HTMLElement) => void): void {
  const line = new LiveLine();
  const waiting = h('p', {role: 'status', class: 'waiting'}, 'Waiting for the first process ...');
  document.body.prepend(waiting);
  let running: Promise<void> | null = null;
  let again = false;
  let live = false;  // it was seen running
  const fetchAll = async (): Promise<void> => {
    do {
      await handsFree();
      again = false;
      const data = await fetched().catch(() => null);  // the collector has gone
      if (data === null) continue;
      await handsFree();
      waiting.remove();
      show(data, line.root);
    } while (again);
    running = null;
  };
  // Settles when what there is now is shown.
  const refresh = (): Promise<void> => {
    again = running !== null;
    return running ??= fetchAll();
  };
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
    void refresh().then(() => {  // the last numbers first
      line.end(live);
      events.close();
    });
  });
}
