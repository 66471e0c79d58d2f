"""A run's numbers: metrics.jsonl, TensorBoard and W&B; phase and compile times.

Names are TRL's where TRL has one:

  loss, grad_norm, entropy, learning_rate    the rate of the last update
  num_tokens                                 trained on so far, prompts too
  reward, reward_std, frac_reward_zero_std   of all sampled, before shaping
  reward/overlong_{penalty,frac}             where it is on; mean and share
  dynamic_sampling/{generated_groups,kept_frac,refills}   where it is on
  reference/{age,kl_average}                 steps, nats; where there is one
  completions/{mean,min,max}_length, completions/{clipped_ratio,error_frac}
  clip_ratio/{low,high,region}_mean
  kl                                         to the reference policy, nats
  sampling/sampling_logp_difference/mean     sampler against learner
  sampling/importance_sampling_ratio/mean
  staleness/{mean,max}                       versions the sampler was behind
  eval/<task>/<measure>                      pass@1, ...
  time/<phase>, perf/*, compile/*            differ from run to run;
                                             time/wait: for rollouts

`VERL_ALIASES` says what verl calls them.
"""
import contextlib
import json
import logging
import math
import os
import pathlib
import threading
import time
from typing import Any, Iterator, Mapping
import uuid

import jax
import tensorboardX

from rlclip import types, workdir

# Keys under these prefixes depend on the machine and the moment. All others
# are bit-equal for the same config, seed and machine, also after a resume.
NONDETERMINISTIC_PREFIXES = ('time/', 'perf/', 'compile/')

# verl's name: ours. verl's timings are also seconds a step.
VERL_ALIASES = {
    'actor/pg_loss': 'loss',
    'actor/grad_norm': 'grad_norm',
    'actor/entropy': 'entropy',
    'actor/pg_clipfrac': 'clip_ratio/region_mean',
    'actor/kl_loss': 'kl',
    'critic/score/mean': 'reward',
    'response_length/mean': 'completions/mean_length',
    'response_length/min': 'completions/min_length',
    'response_length/max': 'completions/max_length',
    'response_length/clip_ratio': 'completions/clipped_ratio',
    'timing_s/gen': 'time/sample',
    'timing_s/reward': 'time/reward',
    'timing_s/update_actor': 'time/update',
    'timing_s/testing': 'time/eval',
    'timing_s/save_checkpoint': 'time/checkpoint',
    'timing_s/step': 'time/step',
}

_COMPILED = '/jax/core/compile/backend_compile_duration'
_COMPILING = '/jax/core/compile/'
_log = logging.getLogger(__name__)


def to_floats(
    metrics: Mapping[str, types.Mean | Any]) -> dict[str, float]:
  """Fetches all values in one transfer and divides every Mean once.

  Args:
    metrics: Means, or scalars (device, numpy or Python).
  """
  host = jax.device_get(dict(metrics))
  return {name: float(value.value() if isinstance(value, types.Mean) else value)
          for name, value in host.items()}


def is_deterministic(name: str) -> bool:
  """Whether a second run of the same config repeats this value bit by bit."""
  return not name.startswith(NONDETERMINISTIC_PREFIXES)


def read(path: str | os.PathLike) -> list[dict[str, float]]:
  """Reads metrics.jsonl, NaN and infinities included; a torn end is left out.

  Raises:
    ValueError: if a line before the last is no JSON object; names it.
  """
  lines, _ = _whole_lines(pathlib.Path(path))
  return [_decode(line) for line in lines]


class Writer:
  """Writes one step's numbers to every place that keeps them."""

  def __init__(
      self, folder: workdir.RunFolder, *, keep_through: int = -1,
      tensorboard: bool = True, wandb: Mapping[str, Any] | None = None):
    """Opens the files and removes what a resumed run will write again.

    Args:
      folder: of the run; its metrics.jsonl and tb/ are written.
      keep_through: the last step to keep, that of the checkpoint resumed
        from; -1 begins anew.
      tensorboard: whether to write event files.
      wandb: keyword arguments of `wandb.init` (project, mode, ...), or None.

    Raises:
      ImportError: if W&B is asked for and not installed.
      ValueError: if metrics.jsonl is damaged before its last line.
    """
    self._path = folder.metrics
    self._step = _cut(folder.metrics, keep_through)
    with workdir.disk_errors(folder.metrics):
      self._file = os.open(
          folder.metrics, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    self._tensorboard = self._wandb = None
    if tensorboard:
      self._tensorboard = tensorboardX.SummaryWriter(
          str(folder.tensorboard), purge_step=keep_through + 1,
          # Names hold seconds only: a quick restart would write over a file.
          filename_suffix=f'.{time.time_ns()}')
    if wandb is not None:
      self._wandb = _start_wandb(folder, wandb)

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Appends one line; it is in the file, whole, when this returns.

    A value JSON has no number for is written as null, and spelled out under
    the key `nonfinite`: {"kl": null, "nonfinite": {"kl": "inf"}, "step": 7}.
    So numeric columns stay numeric and nothing is lost.

    Raises:
      ValueError: if `step` does not come after the last one written.
      OSError: if the disk is full; the file keeps its whole lines.
    """
    reserved = sorted({'step', 'nonfinite'} & set(metrics))
    if reserved:
      raise ValueError(
          f'A metric cannot be called {reserved[0]!r}, a key of the line '
          f'itself. Give it another name.')
    if step <= self._step:
      raise ValueError(
          f'{self._path} holds step {self._step} already, got step {step}. '
          'Gather what belongs to one step and write it once.')
    line = (_encode(step, metrics) + '\n').encode()
    size = os.fstat(self._file).st_size
    with workdir.disk_errors(self._path, 'The lines before are whole. '):
      try:
        if os.write(self._file, line) != len(line):
          os.write(self._file, line[-1:])  # names the reason as an OSError
          raise OSError(f'{self._path} took a part of a line only.')
      except OSError:
        os.ftruncate(self._file, size)
        raise
    self._step = step
    if self._tensorboard:
      for name, value in sorted(metrics.items()):
        self._tensorboard.add_scalar(name, value, step)
    if self._wandb:
      self._wandb.log({**metrics, 'step': step})

  def flush(self) -> None:
    """Forces everything to disk; call before a checkpoint of the step."""
    with workdir.disk_errors(self._path):
      os.fsync(self._file)
      if self._tensorboard:
        self._tensorboard.flush()

  def close(self) -> None:
    """Flushes and closes; further writes are errors."""
    self.flush()
    os.close(self._file)
    if self._tensorboard:
      self._tensorboard.close()
    if self._wandb:
      self._wandb.finish()


class Phases:
  """Seconds a step spends in each phase.

  A phase inside another counts for itself alone, so the phases of a thread add
  up to at most time/step. Several threads may have phases open at a time; what
  another thread than the one that calls `take` is in counts once it ends.
  """

  def __init__(self):
    self._seconds: dict[str, float] = {}
    self._lock = threading.Lock()
    self._thread = _Clock()
    self._begun = self._thread.since

  @contextlib.contextmanager
  def __call__(self, phase: str) -> Iterator[None]:
    self._turn()
    self._thread.open.append(phase)
    try:
      yield
    finally:
      self._turn()
      self._thread.open.pop()

  def take(self) -> dict[str, float]:
    """Returns time/<phase> and time/step since the last call; starts anew."""
    now = self._turn()
    with self._lock:
      taken = {f'time/{phase}': s for phase, s in self._seconds.items()}
      self._seconds = {}
    taken['time/step'] = now - self._begun
    self._begun = now
    return taken

  def _turn(self):
    now, clock = time.perf_counter(), self._thread
    if clock.open:
      with self._lock:
        self._seconds[clock.open[-1]] = (
            self._seconds.get(clock.open[-1], 0.0) + now - clock.since)
    clock.since = now
    return now


class _Clock(threading.local):
  """The phases open in a thread, and when the last of them changed."""

  def __init__(self):
    self.open: list[str] = []
    self.since = time.perf_counter()


class Compilations:
  """Counts XLA compilations and the seconds that tracing to binary took."""

  def __init__(self):
    self._count, self._seconds = 0, 0.0
    jax.monitoring.register_event_duration_secs_listener(self._listen)

  def take(self) -> dict[str, float]:
    """Returns compile/count and compile/seconds since the last call."""
    taken = {'compile/count': self._count, 'compile/seconds': self._seconds}
    self._count, self._seconds = 0, 0.0
    return taken

  def close(self) -> None:
    jax.monitoring.unregister_event_duration_listener(self._listen)

  def _listen(self, event, seconds, **unused_context):
    self._count += event == _COMPILED
    if event.startswith(_COMPILING):
      self._seconds += seconds


def _encode(step, metrics):
  values = {name: float(value) for name, value in metrics.items()}
  odd = {n: str(v) for n, v in values.items() if not math.isfinite(v)}
  line = {n: None if n in odd else v for n, v in values.items()}
  line['step'] = step
  if odd:
    line['nonfinite'] = odd
  return json.dumps(line, sort_keys=True, allow_nan=False)


def _decode(line):
  values = json.loads(line)
  odd = values.pop('nonfinite', {})
  return {**values, **{name: float(text) for name, text in odd.items()}}


def _whole_lines(path):
  """Returns the whole lines and the size of each, newline included."""
  lines, sizes = [], []
  raw = path.read_bytes().splitlines(keepends=True) if path.exists() else []
  for number, line in enumerate(raw, 1):
    try:
      values = json.loads(line) if line.endswith(b'\n') else None
      if not isinstance(values, dict) or 'step' not in values:
        raise ValueError('it ends early or has no step')
    except ValueError as error:
      if number == len(raw):
        break
      raise ValueError(
          f'{path}, line {number}: expected a JSON object with a step, '
          f'{error}. Remove the line, or give another --workdir.') from error
    lines.append(line)
    sizes.append(len(line))
  return lines, sizes


def _cut(path, keep_through):
  """Drops a torn end and later steps; returns the last step left, or -1."""
  lines, sizes = _whole_lines(path)
  steps = [json.loads(line)['step'] for line in lines]
  kept = sum(step <= keep_through for step in steps)
  if path.exists():
    before, size = path.stat().st_size, sum(sizes[:kept])
    if size < before:
      os.truncate(path, size)
      _log.info('%s: dropped %d lines after step %d.', path,
                len(lines) - kept, keep_through)
  return max(steps[:kept], default=-1)


def _start_wandb(folder, arguments):
  try:
    import wandb
  except ImportError as error:
    raise ImportError(
        'config.logging.wandb_project asks for W&B, which is not installed. '
        'Install it with `pip install -e .[wandb]`, or clear the key.'
    ) from error
  # The same run goes on after a resume: its id is kept beside its numbers.
  path = folder.path / 'wandb_id.txt'
  if not path.exists():
    workdir.write_atomically(path, uuid.uuid4().hex[:8])
  run = wandb.init(
      id=path.read_text().strip(), resume='allow', dir=str(folder.path),
      **arguments)
  # W&B's own step never goes back, as it must after a resume.
  run.define_metric('*', step_metric='step')
  return run
