// What was measured, with what, and how far the numbers can be believed.
import {Data} from './data';
import {h, section} from './dom';
import {bytes, clock, count, duration, kTimingWords, percent} from './units';

type Fact = [string, string | Node | null | undefined | false];

// Kinds of devices; each with its UUID is one click away.
function devices(data: Data): Node {
  const all = data.report.conditions.devices;
  const kinds = new Map<string, number>();
  for (const d of all) {
    const kind = `${d.name}, ${bytes(d.memory_bytes)}`;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  return h('details', {}, h('summary', {}, [...kinds].map(([kind, n]) => `${count(n)}x ${kind}`).join('; ')),
           ...all.map(d => h('div', {}, `${d.host}/${d.ordinal}: ${d.name}, ${d.uuid}`)));
}

function hosts(data: Data): string {
  const all = data.report.conditions.hosts;
  return all.length <= 16 ? all.join(', ') : `${all.length} hosts: ${all.slice(0, 8).join(', ')} and ${all.length - 8} more`;
}

function run(data: Data): Fact[] {
  const c = data.report.conditions;
  return [['command', c.command_line.join(' ')], ['job', c.job], ['started', clock(c.start_ns)], ['duration', duration(c.duration_ns)], ['hosts', hosts(data)],
          ['devices', data.report.conditions.devices.length > 0 && devices(data)], ['differs between ranks', c.differing.join('; ')],
          ['CUDA driver', c.cuda_driver], ['CUDA runtime', c.cuda_runtime], ['CUPTI', c.cupti], ['NCCL', c.nccl],
          ['probe, collector', `${c.probe_version}, ${c.collector_version}`], ['step marker', c.step_marker],
          ['parallelism (inferred)', data.report.communication.pattern.join(', ')]];
}

function trust(data: Data): Fact[] {
  const t = data.report.trust;
  const lost = Object.entries(t.lost);
  const cost = t.cost;
  return [['records', count(t.records)], ['lost', lost.length === 0 ? 'none' : lost.map(([reason, n]) => `${reason}: ${count(n)}`).join('; ')],
          ['coverage', t.coverage === null ? null : percent(t.coverage)], ['GPU times from', kTimingWords[t.timing_source]],
          ['cost of profiling', t.overhead_fraction === null ? 'not known' : `at least ${percent(t.overhead_fraction)} of the processes' time`],
          ["CUPTI's part (estimated)", cost.expected_cupti_least !== null && cost.expected_cupti_most !== null ? `${percent(cost.expected_cupti_least)} to ${percent(cost.expected_cupti_most)}, from H100 figures` : null],
          ['left out on request', t.outside_window > 0 && `${count(t.outside_window)} records`],
          ['detail', t.detail.reductions > 0 && `recording ended ${duration(t.detail.reduced_ns)} before the end, to hold the overhead budget`],
          ['older detail', t.detail_since_ns !== null && `single records exist from ${clock(t.detail_since_ns)} on; totals cover the whole run`],
          ['exited uncleanly', t.cut_off.filter(c => c.by !== 'collector').map(c => c.who).join(', ')],
          ['outlived the collector', t.cut_off.filter(c => c.by === 'collector').map(c => c.who).join(', ')], ['last flush not finished', t.exit_incomplete.join(', ')],
          ['damaged logs', t.damaged_logs.join('; ')],
          ['GPU records without a known launch', t.device_records_unattributed > 0 && `${count(t.device_records_unattributed)}: in totals, in no phase`],
          ['records that came late', t.device_records_late > 0 && count(t.device_records_late)], ['invalid times', t.invalid_times > 0 && count(t.invalid_times)],
          ['names that were not kept', t.other_names > 0 && count(t.other_names)],
          ['CUPTI on another clock', t.device_clock_ahead_ns !== 0 && `${duration(Math.abs(t.device_clock_ahead_ns))} ${t.device_clock_ahead_ns > 0 ? 'ahead' : 'behind'}`],
          ['clock stepped', t.clock_step_ns !== 0 && duration(Math.abs(t.clock_step_ns))],
          ...t.cupti_defects.map((d): Fact => ['not recorded because of CUPTI', `${d.left_out} (${d.defect})`])];
}

function list(facts: Fact[]): HTMLElement {
  return h('dl', {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value as string | Node)]));
}

export function conditions(data: Data): HTMLElement {
  const {root, body} = section('conditions', 'Conditions and trust');
  const u = data.report.utilisation;
  body.append(h('div', {class: 'two'}, h('div', {}, h('h3', {}, 'Run'), list(run(data))),
                h('div', {}, h('h3', {}, 'Trust'), list(trust(data)),
                  u && u.mfu !== null ? h('p', {}, `MFU ${percent(u.mfu)} on ${u.devices} devices (${u.formula}, ${u.type}).`) : null)),
              h('p', {class: 'note'}, 'All numbers are in report.json beside this page; gpuprobe export prints single records.'));
  return root;
}
