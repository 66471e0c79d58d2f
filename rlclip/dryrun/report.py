"""What a config needs and takes on a slice: one record, JSON and a table."""
import dataclasses
from typing import Any, Mapping, Sequence

import rich.console
import rich.table

from rlclip.dryrun import advice as advice_lib
from rlclip.dryrun import counting, hlo, memory
from rlclip.dryrun import plan as plan_lib

# What is on a device during the other half of a step too.
_OF_THE_SAMPLER = (
    'sampler weights', "completions' cache", "prompts' cache")
_OF_THE_LEARNER = (
    'parameters', 'optimizer moments', 'reference', 'anchor policy')


@dataclasses.dataclass(frozen=True)
class Program:
  """What the compiler says of one function, of a device.

  Attributes:
    arguments: bytes that go in.
    outputs: bytes that come out and do not take an argument's place.
    temporaries: bytes in between.
    needed: bytes that the compiler could not place; 0 where it could.
    flops: as the compiler counts them: a loop's body once.
    collectives: read off the program.
    seconds: it took to compile.
  """
  arguments: float = 0
  outputs: float = 0
  temporaries: float = 0
  needed: float = 0
  flops: float = 0
  collectives: tuple[hlo.Collective, ...] = ()
  seconds: float = 0

  @property
  def total(self) -> float:
    return self.needed or self.arguments + self.outputs + self.temporaries


@dataclasses.dataclass(frozen=True)
class Line:
  """One phase of an RL step; FLOPs, bytes and seconds are a call's, a device's.

  Attributes:
    name: of the phase.
    calls: a step.
    flops: computed, by arithmetic.
    hbm: bytes from and to memory, by arithmetic.
    link: seconds of sending, off the compiled program or by arithmetic.
    seconds: the roofline: the longest of computing, reading and sending.
    bound: which that is: 'compute', 'memory' or 'links'.
    total: bytes in the phase, with what lies there besides; 0 where it was
      not compiled.
    program: what the compiler says; None where it was not compiled.
  """
  name: str
  calls: float
  flops: float
  hbm: float
  link: float
  seconds: float
  bound: str
  total: float
  program: Program | None


@dataclasses.dataclass(frozen=True)
class Report:
  """All of it; bytes are a device's.

  Attributes:
    config: as it was named.
    model: likewise.
    slice: 'v5e:8x8'.
    source: of the chip's figures.
    num_devices: of the slice.
    mesh: (data, fsdp, tensor).
    host_mesh: of a process's sampler.
    num_processes: of the run.
    analysis_only: nothing was compiled.
    hbm: of a device.
    resident: what lies there throughout.
    update: what an update takes besides, estimated.
    estimate: both together.
    peak: the most that a phase takes; estimated where nothing was compiled.
    fits: the verdict.
    lines: the phases.
    mean_length: of completions, in tokens, that times are for.
    step_seconds: roofline of an RL step.
    tokens_per_second: completions' tokens, of the whole slice.
    mfu: share of the peak FLOP/s that the model's own FLOPs take, of a step.
    update_mfu: of an update alone.
    advice: changes that would save most.
  """
  config: str
  model: str
  slice: str
  source: str
  num_devices: int
  mesh: tuple[int, int, int]
  host_mesh: tuple[int, int, int]
  num_processes: int
  analysis_only: bool
  hbm: float
  resident: Mapping[str, float]
  update: Mapping[str, float]
  estimate: float
  peak: float
  fits: bool
  lines: Sequence[Line]
  mean_length: float
  step_seconds: float
  tokens_per_second: float
  mfu: float
  update_mfu: float
  advice: Sequence[advice_lib.Advice]


def make(plan: plan_lib.Plan, programs: Mapping[str, Program], *,
         config: str, model: str, mean_length: float = 0) -> Report:
  """Puts arithmetic and what was compiled together.

  Args:
    plan: the config on its slice.
    programs: by phase; empty for arithmetic alone.
    config: its name.
    model: its name.
    mean_length: of completions, as in counting.phases.
  """
  e, s = plan.experiment, plan.slice
  resident, update = memory.resident(plan), memory.update(plan)
  phases = counting.phases(plan, mean_length)
  lines = [_line(plan, phase, resident, programs.get(phase.name))
           for phase in phases]
  estimate = sum(resident.values()) + sum(update.values())
  # What could not be compiled beside what was has only its estimate.
  peak = max([line.total for line in lines]
             + ([] if 'update' in programs else [estimate]))
  seconds = sum(line.calls * line.seconds for line in lines)
  length = mean_length or e.rollout.completion_length
  mfu = lambda names: sum(
      p.calls * p.model_flops for p in phases if p.name in names) / (
          s.flops * s.num_devices * sum(
              line.calls * line.seconds for line in lines
              if line.name in names))
  failed = any(p.needed for p in programs.values())
  return Report(
      config=config, model=model, slice=s.name, source=s.chip.source,
      num_devices=s.num_devices, mesh=plan.mesh, host_mesh=plan.host_mesh,
      num_processes=plan.num_processes, analysis_only=not programs, hbm=s.hbm,
      resident=resident, update=update, estimate=estimate, peak=peak,
      fits=peak <= s.usable and not failed, lines=lines, mean_length=length,
      step_seconds=seconds,
      tokens_per_second=e.num_rows * length / seconds,
      mfu=mfu({line.name for line in lines}), update_mfu=mfu({'update'}),
      advice=advice_lib.best(plan))


def as_dict(report: Report) -> dict[str, Any]:
  """For JSON; advice by name."""
  found = dataclasses.asdict(report)
  found['advice'] = [advice._asdict() for advice in report.advice]
  return found


def show(report: Report, out: rich.console.Console | None = None) -> None:
  """Prints the report."""
  out = out or rich.console.Console(highlight=False)
  r, gib = report, lambda size: f'{size / 2 ** 30:.2f}'
  how = 'analysis alone, nothing compiled' if r.analysis_only else 'compiled'
  out.print(f'{r.config} ({r.model}) on {r.slice}: {how}', style='bold')
  out.print(f'{r.num_devices} devices, mesh data x fsdp x tensor '
            f'{" x ".join(map(str, r.mesh))}; {r.num_processes} processes, '
            f'each sampling on {" x ".join(map(str, r.host_mesh))}')
  out.print(f'figures of the chip: {r.source}')
  table = rich.table.Table(title='GiB a device, by arithmetic')
  for name, align in (('', 'left'), ('', 'right')):
    table.add_column(name, justify=align)
  for name, size in {**r.resident, **r.update,
                     'together': r.estimate, 'of': r.hbm}.items():
    table.add_row(name, gib(size))
  out.print(table)
  table = rich.table.Table(title='phases of an RL step, a device')
  for name in ('phase', 'calls', 'TFLOP', 'GB moved', 'ms', 'bound by',
               'arguments GiB', 'temporaries GiB', 'with the rest GiB'):
    table.add_column(name, justify='left' if name == 'phase' else 'right')
  for x in r.lines:
    p = x.program
    table.add_row(
        x.name, f'{x.calls:,.0f}', f'{x.flops / 1e12:.3g}',
        f'{x.hbm / 1e9:.3g}', f'{1e3 * x.seconds:,.4g}', x.bound,
        *((gib(p.arguments), gib(p.outputs + p.temporaries), gib(x.total))
          if p and not p.needed else ('', f'no room: {gib(p.needed)}', '')
          if p else ('', '', '')))
  out.print(table)
  _show_collectives(r, out)
  out.print(
      f'roofline: {r.step_seconds:,.1f} s an RL step, with completions of '
      f'{r.mean_length:,.0f} tokens; {r.tokens_per_second:,.0f} tokens/s; MFU '
      f'{r.mfu:.1%} of a step, {r.update_mfu:.1%} of an update')
  verdict = 'fits' if r.fits else 'DOES NOT FIT'
  out.print(f'{verdict}: {gib(r.peak)} of {gib(r.hbm)} GiB a device',
            style='bold')
  out.print('What would save most (estimated):')
  for advice in r.advice:
    out.print(f'  {advice.change}: {gib(advice.saved)} GiB'
              f'{"" if r.fits else ", then fits" if advice.fits else ""}')


def _show_collectives(report, out, most: int = 4) -> None:
  for line in report.lines:
    if line.program is None or not line.program.collectives:
      continue
    table = rich.table.Table(title=f'collectives of a call of {line.name}')
    for name in ('kind', 'MB', 'devices', 'times'):
      table.add_column(name, justify='left' if name == 'kind' else 'right')
    for c in line.program.collectives[:most]:
      table.add_row(c.kind, f'{c.bytes / 1e6:,.3f}', str(c.group or '?'),
                    f'{c.count:,}{"" if c.exact else " (a round)"}')
    out.print(table)


def _line(plan, phase, resident, program) -> Line:
  s = plan.slice
  link = phase.link / s.link_rate
  if program is not None and not program.needed:
    link = sum(c.seconds(s.link_rate) for c in program.collectives)
  times = {'compute': phase.flops / s.flops, 'memory': phase.hbm / s.hbm_rate,
           'links': link}
  bound = max(times, key=times.get)
  beside = _OF_THE_LEARNER if phase.name in (
      'prefill', 'decode') else _OF_THE_SAMPLER
  total = 0.0
  if program is not None:
    total = program.total + sum(
        size for name, size in resident.items() if name in beside)
  return Line(phase.name, phase.calls, phase.flops, phase.hbm, link,
              times[bound], bound, total, program)
