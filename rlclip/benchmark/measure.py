"""The registry of items, and the stopwatch they share."""
import dataclasses
import itertools
import os
import pathlib
import platform
import resource
import statistics
import time
from typing import Any, Callable, Sequence

import jax

from rlclip import config as config_lib
from rlclip import registry as registry_lib

Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Options:
  """What the command line says of an item.

  Attributes:
    experiment: sizes and model, for the items that take them from a config.
    dtype: of weights and activations; None takes the item's own.
    repeats: warm calls a median is of; 0 takes the item's own.
    only: the parts to measure; all of them where empty.
  """
  experiment: config_lib.Experiment
  dtype: str | None = None
  repeats: int = 0
  only: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Item:
  """A measurement and the way to show it.

  Attributes:
    run: Options -> Result, which is JSON.
    table: Result -> lines for the terminal.
  """
  run: Callable[[Options], Result]
  table: Callable[[Result], str]


ITEMS = registry_lib.Registry('benchmark item')


def result(item: str, dtype: str, times: dict, **more) -> Result:
  """What every item reports, and more."""
  info = {'jax': jax.__version__, 'backend': jax.default_backend(),
          **more.pop('info', {})}
  return {'peer': 'rlclip', 'item': item, 'dtype': dtype,
          'python': platform.python_version(), 'info': info, 't': times,
          **more, 'peak_rss_mb': peak_rss_mb()}


def measure(step: Callable[[Any], Any], arguments: Sequence[Any],
            repeats: int) -> dict[str, float]:
  """Times a call on arguments in turn.

  Args:
    step: what it returns is waited for.
    arguments: each is called once before the clock counts.
    repeats: calls that count.

  Returns:
    Seconds: first_s, which compiles; median_s, min_s, max_s and the processor
    time cpu_s (median) of the n others; other_cores, cores that anything else
    on the machine kept busy meanwhile (nan where the system does not say);
    peak_rss_mb, the process's largest memory so far.
  """
  seconds, cpu = [], []
  for i, argument in enumerate(itertools.islice(
      itertools.cycle(arguments), repeats + len(arguments))):
    if i == len(arguments):
      busy, begin = _busy(), time.perf_counter()
    start, cpu_start = time.perf_counter(), time.process_time()
    jax.block_until_ready(step(argument))
    seconds.append(time.perf_counter() - start)
    cpu.append(time.process_time() - cpu_start)
  others = (_busy() - busy) / (time.perf_counter() - begin)
  warm = seconds[len(arguments):]
  return {'first_s': seconds[0], 'median_s': statistics.median(warm),
          'min_s': min(warm), 'max_s': max(warm), 'n': repeats,
          'cpu_s': statistics.median(cpu[len(arguments):]),
          'other_cores': max(0.0, others), 'peak_rss_mb': peak_rss_mb()}


def peak_rss_mb() -> float:
  """The process's largest resident memory so far, in MB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _busy() -> float:
  """Seconds of processor time that others on this machine have used."""
  stat = pathlib.Path('/proc/stat')
  if not stat.exists():
    return float('nan')
  ticks = [int(x) for x in stat.read_text('utf-8').split('\n')[0].split()[1:9]]
  idle, waiting = ticks[3], ticks[4]
  busy = (sum(ticks) - idle - waiting) / os.sysconf('SC_CLK_TCK')
  own = os.times()
  return busy - own.user - own.system - own.children_user - own.children_system
