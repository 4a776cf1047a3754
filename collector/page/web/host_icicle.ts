// Where the host was while a GPU had nothing to do: the time on top, below it the program's own lines, below each
// of them the library's line and the call that it was in. A block is as wide as its share.
import {Data, Finding, PictureName} from './data';
import {Block, icicle} from './icicle';
import {HostPlace, HostTime, PythonFrame} from './report';
import {duration, plural, shortFile} from './units';

interface Root { title: string; ns: number; places: HostPlace[]; rest: [string, number][] }

// By the picture of the finding: a step's idle time, with the cause that the finding is about pointed out.
const kCauses: Partial<Record<PictureName, HostTime['cause'][]>> = {
  idle_input: ['input'], idle_launch: ['host_bound'], idle_sync: ['sync', 'blocked'], idle_memory: ['memory'], idle_pause: ['pause']};
const kCauseWords: Record<HostTime['cause'], string> = {
  host_bound: 'idle because the host launches late', input: 'idle while the host loads', sync: 'idle after the host waited for the GPU',
  memory: 'idle while the host calls the allocator', pause: 'idle in pauses of the host', blocked: 'the host waits for the GPU', between: 'between two steps'};

function frameWords(frame: PythonFrame): string {
  return `${frame.function} (${shortFile(frame.file)}${frame.line === null ? '' : `:${frame.line}`})`;
}

function callWords(place: HostPlace): string {
  if (place.call !== null) return place.call;
  if (place.memory_call) return 'allocates or releases memory';
  if (place.system_call === null) return '';
  return place.file === null ? place.system_call : `${place.system_call} of ${place.file}`;
}

function block(place: HostPlace): Block {
  const levels = [...place.python].reverse().map(frameWords);
  const call = callWords(place);
  if (call !== '') levels.push(call);
  if (place.no_cpu) levels.splice(0, levels.length, 'waits for a CPU');
  if (levels.length === 0) levels.push('code whose stack is not known');
  const sure = place.samples > 0 ? `${place.samples} of ${plural(place.of_samples, 'sample')}` : 'measured';
  const ns = place.ns_per_step;
  return levels.reduceRight((below: Block[], name, depth) =>
      [{name, ns, words: `${duration(ns)} a step, ${sure}`, css: depth === 0 ? 'own' : depth === levels.length - 1 && call !== '' ? 'call' : 'library', below}], [])[0];
}

function rootOf(data: Data, finding: Finding, picture: PictureName | ''): Root | null {
  const causes = picture === '' ? undefined : kCauses[picture];
  const {report} = data;
  if (causes !== undefined) {
    for (const cause of causes) {
      const time = report.host_time?.find(one => one.cause === cause && one.places.length > 0);
      if (time !== undefined)
        // A finding leaves out what long steps have to say of their own.
        return {title: (report.long_steps === null ? '' : 'long steps included, ') + kCauseWords[cause], ns: time.ns_per_step, places: time.places,
                rest: [['other places', time.other_ns_per_step], ['not sampled', time.not_sampled_ns_per_step]]};
    }
  }
  const longSteps = picture === 'step_times';
  const of = longSteps ? report.long_steps?.host_places :
      picture === 'caused_wait' ? report.stragglers.find(one => one.rank !== null && one.rank === finding.about.ranks[0])?.host_places : undefined;
  if (of === undefined || of.length === 0) return null;
  return {title: longSteps ? 'what hosts did in these steps' : `what the host of rank ${finding.about.ranks[0]} did longer than others`,
          ns: of.reduce((sum, place) => sum + place.ns_per_step, 0), places: of, rest: []};
}

// null: nothing is known of the host for this finding.
export function hostIcicle(data: Data, index: number): HTMLElement | null {
  const root = rootOf(data, data.report.findings[index], data.pictures[index]);
  if (root === null || root.ns <= 0) return null;
  const blocks = root.places.map(block);
  for (const [name, ns] of root.rest) if (ns > 0) blocks.push({name, ns, words: `${duration(ns)} a step`, css: 'rest', below: []});
  return icicle(`${duration(root.ns)} a step: ${root.title}`, root.ns, blocks);
}
