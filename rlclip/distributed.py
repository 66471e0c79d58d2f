"""Several processes that are one run: how they begin, agree and end.

Each runs the same command and takes every decision by itself, from the same
numbers. What could differ between machines (completions drawn, verdicts under
a deadline, what a folder holds) is made by one of them and given to all.
"""
import contextlib
import faulthandler
import logging
import os
import pickle
import re
import sys
import traceback
from typing import Any, Iterator, Mapping, TypeVar

import jax
from jax.experimental import multihost_utils
import numpy as np

T = TypeVar('T')

# A process that ends because another one has is aborted: signal 6, which a
# shell and Kubernetes report as 134. JAX does the same where heartbeats stop,
# from a thread that no Python can stop.
ABORTED = 134
# What the user can mend: the message says enough without our stack.
MENDABLE = (ValueError, OSError, FloatingPointError)
_LOST = re.compile(
    r'gloo|nccl|coordination ?service|heartbeat|barrier', re.IGNORECASE)
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def joined(coordinator: str, *, num_processes: int = 0, process_id: int = -1,
           start_timeout: int = 300, heartbeat_timeout: int = 100
           ) -> Iterator[None]:
  """Joins this process to the others of its run; alone, does nothing.

  To be entered before anything touches a device. Where the block raises in a
  run of several, the process ends here and at once: the others wait in some
  collective operation, and an orderly end would wait for them.

  Args:
    coordinator: host:port of process 0; 'auto' asks the cluster, for the
      other two settings too; '' for a process that is alone.
    num_processes: of the run.
    process_id: of this one, from 0.
    start_timeout: seconds that the processes wait for one another at first.
    heartbeat_timeout: seconds of silence after which one is taken for dead.

  Raises:
    ValueError: settings that make no sense, or no cluster that says who is in
      the run. Where others do not come, JAX aborts.
  """
  if coordinator:
    _start(coordinator, num_processes, process_id, start_timeout,
           heartbeat_timeout)
  try:
    yield
  except BaseException as error:
    if several() and not (isinstance(error, SystemExit) and not error.code):
      _leave(error)
    raise


def several() -> bool:
  """Whether the run has more than one process."""
  return jax.process_count() > 1


def is_primary() -> bool:
  """Whether this process is the one that writes the run's files."""
  return jax.process_index() == 0


def exchange(value: T) -> list[T]:
  """Every process's value, in their order; all call it together.

  Args:
    value: what pickle takes. Sizes are rounded up to powers of two, so that
      few are compiled.
  """
  if not several():
    return [value]
  data = np.frombuffer(pickle.dumps(value), np.uint8)
  sizes = multihost_utils.process_allgather(np.int32(data.size)).reshape(-1)
  padded = np.zeros(1 << int(sizes.max() - 1).bit_length(), np.uint8)
  padded[:data.size] = data
  gathered = multihost_utils.process_allgather(padded)
  return [pickle.loads(row[:size].tobytes())
          for row, size in zip(gathered, sizes)]


def require_same(config: Mapping[str, Any], what: str) -> None:
  """Stops all processes where one has another value than process 0.

  Args:
    config: flat.
    what: its name, for the message.

  Raises:
    ValueError: in every process, the same; names the first key.
  """
  first, *others = exchange(dict(config))
  for process, other in enumerate(others, 1):
    for key in sorted({*first, *other}):
      if first.get(key) != other.get(key):
        raise ValueError(
            f'All processes of a run need the same {what}, but {key} is '
            f'{first.get(key)!r} in process 0 and {other.get(key)!r} in '
            f'process {process}. Start all with the same command and the same '
            f'packages.')


def has_lost_another(error: BaseException) -> bool:
  """Whether an error says that another process is gone."""
  return (isinstance(error, (ValueError, RuntimeError))
          and _LOST.search(str(error)) is not None)


def _start(coordinator, num_processes, process_id, start_timeout, heartbeat):
  by_hand = coordinator != 'auto'
  _check(coordinator, num_processes, process_id, start_timeout, heartbeat)
  given = dict(
      coordinator_address=coordinator, num_processes=num_processes,
      process_id=process_id,
      # Else Slurm would still choose one device a process.
      cluster_detection_method='deactivate') if by_hand else {}
  # Said beforehand: where they do not meet, JAX aborts the process.
  where = (f'for {num_processes - 1} others at {coordinator}' if by_hand
           else 'for those of its cluster')
  sys.stderr.write(f'This process waits {where}, up to {start_timeout} s.\n')
  # Else JAX would take SIGTERM for a notice to be passed on, and the process
  # would live on.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    jax.distributed.initialize(
        **given, initialization_timeout=start_timeout,
        heartbeat_timeout_seconds=heartbeat)
  except ValueError as error:
    raise ValueError(
        f'config.distributed.coordinator is auto, and no cluster that JAX '
        f'knows (TPU pod, Slurm, Open MPI, Kubernetes with the package '
        f'kubernetes) says who is in the run: {error} Give coordinator as '
        f'host:port, num_processes and process_id.') from error
  # JAX aborts where heartbeats stop: stacks of all threads, which absl asks
  # for, would bury what it says.
  faulthandler.disable()
  _log.info('Process %d of %d, with %d of %d devices.', jax.process_index(),
            jax.process_count(), jax.local_device_count(), jax.device_count())


def _check(coordinator, num_processes, process_id, start_timeout, heartbeat):
  by_hand = coordinator != 'auto'
  host, _, port = coordinator.rpartition(':')
  rules = (
      (not by_hand or host and port.isdecimal(), 'coordinator',
       "'' (one process), auto, or host:port", coordinator),
      (by_hand or num_processes == 0, 'num_processes',
       '0, its default, where coordinator is auto', num_processes),
      (by_hand or process_id == -1, 'process_id',
       '-1, its default, where coordinator is auto', process_id),
      (not by_hand or num_processes >= 1, 'num_processes',
       '1 or more where coordinator is host:port', num_processes),
      (not by_hand or 0 <= process_id < num_processes, 'process_id',
       f'0 to {num_processes - 1}, another in each process', process_id),
      (start_timeout >= 1, 'start_timeout', '1 second or more', start_timeout),
      (heartbeat >= 1, 'heartbeat_timeout', '1 second or more', heartbeat))
  for holds, key, expected, got in rules:
    if not holds:
      raise ValueError(
          f'config.distributed.{key} must be {expected}, got {got!r}.')


def _leave(error):
  """Says why, and ends the process without waiting for any other."""
  lost = has_lost_another(error)
  if isinstance(error, SystemExit):
    text = str(error.code)
  elif lost:
    text = (f'{_last_line(error)}\nAnother process of this run has ended; its '
            f'own log says why. This one, {jax.process_index()} of '
            f'{jax.process_count()}, ends too. Start all again, with as many '
            f'processes as you like: the run goes on from its last checkpoint.')
  elif isinstance(error, MENDABLE):
    text = _last_line(error)
  else:
    text = ''.join(traceback.format_exception(error)).rstrip()
  sys.stdout.flush()
  sys.stderr.write(f'{text}\n')
  sys.stderr.flush()
  if lost:
    os.abort()
  os._exit(1)


def _last_line(error):
  return f'{type(error).__name__}: {error}'
