"""Gives units of scoring to workers, and takes them back from bad ones.

One thread owns the processes, since Linux's death signal of a child follows
the thread that made it; any thread may hand in work.
"""
import collections
import contextlib
import dataclasses
import json
from multiprocessing import connection
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple, Sequence

from rlclip.rewards import worker

_LARGEST_CHUNK = 32
# A worker that is at one unit for longer works on alone: the rest of its chunk
# goes to others, and another worker takes its place. It comes back once it is
# done, since it has parsed before: a fresh one is many times slower at first,
# and where the machine is busy would be slow, and replaced, in its turn.
_SLOW_S = 0.25
_MOST_SLOW = 16


class Outcome(NamedTuple):
  """What became of a unit.

  Attributes:
    value: the reward, or None.
    failure: '', 'timeout' or 'error'.
    message: of an error: the end of the traceback.
  """
  value: float | None
  failure: str = ''
  message: str = ''


@dataclasses.dataclass
class _Job:
  """Units that were handed in together."""
  outcomes: list[Outcome | None]
  missing: int
  deadline: float
  done: threading.Event = dataclasses.field(default_factory=threading.Event)

  def settle(self, place: int, outcome: Outcome) -> None:
    if self.outcomes[place] is None:
      self.outcomes[place] = outcome
      self.missing -= 1
      if not self.missing:
        self.done.set()


class _Unit(NamedTuple):
  job: _Job
  place: int
  function: int
  item: bytes


@dataclasses.dataclass
class _Worker:
  pid: int
  connection: connection.Connection
  units: collections.deque = dataclasses.field(
      default_factory=collections.deque)
  since: float = 0.0  # when the first of `units` began
  alone: bool = False  # slow: until it says that it has dropped the rest


class Scheduler:
  """Runs reward functions in killable processes; safe to call from threads."""

  def __init__(
      self, names: Sequence[str], *, num_workers: int, deadline_s: float,
      memory_bytes: int):
    """Starts the processes and waits until the functions are imported.

    Args:
      names: of the reward functions; a unit names its function by position.
      num_workers: that score at a time.
      deadline_s: for a unit, in seconds of wall time.
      memory_bytes: of address space, for each worker.

    Raises:
      ValueError: a function that cannot be imported.
    """
    self._names = tuple(names)
    self._num_workers = num_workers
    self._deadline_s = deadline_s
    self._memory_bytes = memory_bytes
    self._queue: collections.deque[_Unit] = collections.deque()
    self._jobs: list[_Job] = []
    self._incoming: collections.deque = collections.deque()
    self._workers: list[_Worker] = []
    self._parent: subprocess.Popen | None = None
    self._wake_reader, self._wake_writer = os.pipe()
    self._lock = threading.Lock()
    self._closing = False
    self._failure: BaseException | None = None
    self._ready = threading.Event()
    self._thread = threading.Thread(
        target=self._run, name='reward-pool', daemon=True)
    self._thread.start()
    self._ready.wait()
    if self._failure is not None:
      self._thread.join()
      raise ValueError(
          f'Expected importable reward functions {list(self._names)}, got: '
          f'{self._failure}') from self._failure

  def run(
      self, units: Sequence[tuple[int, bytes]], *,
      batch_deadline_s: float = float('inf')) -> list[Outcome]:
    """Runs units `(function, pickled item)`; outcomes in their order.

    Raises:
      RuntimeError: the scheduler is closed or broken.
    """
    job = _Job(
        [None] * len(units), len(units), time.monotonic() + batch_deadline_s)
    if not units:
      return []
    with self._lock:
      if self._closing or self._failure is not None:
        raise RuntimeError(
            'Expected an open reward pool, got a closed or broken one. Make '
            'another.') from self._failure
      self._incoming.append((job, [
          _Unit(job, i, *unit) for i, unit in enumerate(units)]))
      os.write(self._wake_writer, b'.')
    job.done.wait()
    if job.missing:
      raise RuntimeError(
          'The reward pool was closed or broke while it was scoring.'
      ) from self._failure
    return job.outcomes

  def close(self) -> None:
    """Kills the processes; calls that wait for scores raise."""
    with self._lock:
      if not self._closing:
        self._closing = True
        os.write(self._wake_writer, b'.')
    self._thread.join()

  def _run(self) -> None:
    try:
      self._start()
      self._ready.set()
      while not self._closing and self._failure is None:
        self._step()
    except BaseException as error:
      self._failure = error  # for everyone who waits
      raise
    finally:
      self._stop()

  def _start(self) -> None:
    self._control, other = socket.socketpair()
    # Empty entries of sys.path mean the current folder.
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    threads = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}
    with other:
      self._parent = subprocess.Popen(
          worker.command(other.fileno(), self._memory_bytes, self._names),
          pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
          start_new_session=True,
          env={**os.environ, **threads, 'PYTHONPATH': path})
    error = worker.start_reply(self._control)
    if error:
      self._failure = ImportError(error)

  def _stop(self) -> None:
    with self._lock:
      self._closing = True
      os.close(self._wake_reader)
      os.close(self._wake_writer)
    for each in self._workers:
      each.connection.close()
      # Their parent may be what broke; it takes them with it.
      with contextlib.suppress(OSError, EOFError):
        worker.kill(self._control, each.pid)
    if self._parent is not None:
      self._control.close()
      self._parent.kill()
      self._parent.wait()
    for job in [*self._jobs, *(job for job, _ in self._incoming)]:
      job.done.set()
    self._ready.set()

  def _step(self) -> None:
    """Hands out work, waits for something to happen, and deals with it."""
    with self._lock:
      while self._incoming:
        job, units = self._incoming.popleft()
        self._jobs.append(job)
        self._queue.extend(units)
    self._hand_out()
    sources = [self._wake_reader, *(w.connection for w in self._workers)]
    by_source = {w.connection: w for w in self._workers}
    for source in connection.wait(sources, self._patience()):
      if source == self._wake_reader:
        os.read(source, 4096)
      elif by_source[source] in self._workers:  # not ended by the one before
        self._receive(by_source[source])
    self._enforce()
    self._jobs = [job for job in self._jobs if job.missing]

  def _hand_out(self) -> None:
    idle = self._idle()
    busy = sum(bool(w.units) and not w.alone for w in self._workers)
    fair = len(self._queue) // (4 * self._num_workers)
    size = min(max(fair, 1), _LARGEST_CHUNK)
    while self._queue and busy < self._num_workers:
      each = idle.pop(0) if idle else self._fork()  # the oldest knows most
      while self._queue and len(each.units) < size:
        unit = self._queue.popleft()
        if unit.job.outcomes[unit.place] is None:
          each.units.append(unit)
      if not each.units:
        return
      each.since = time.monotonic()
      chunk = [(i, u.function, u.item) for i, u in enumerate(each.units)]
      try:
        each.connection.send_bytes(pickle.dumps(chunk))
        busy += 1
      except OSError:  # died while idle: no unit's fault
        self._discard(each)

  def _idle(self) -> list[_Worker]:
    return [w for w in self._workers if not w.units and not w.alone]

  def _fork(self) -> _Worker:
    ours, theirs = connection.Pipe()
    with theirs:
      pid = worker.fork(self._control, theirs.fileno())
    fresh = _Worker(pid, ours)
    self._workers.append(fresh)
    return fresh

  def _receive(self, each: _Worker) -> None:
    """Takes the results that have come from one worker."""
    try:
      while each.connection.poll():
        unit, value, error = json.loads(each.connection.recv_bytes())
        if unit is None:  # it has dropped what others have by now
          each.alone = False
          for spare in self._idle()[self._num_workers:]:
            self._discard(spare)
          return
        if each.units:
          self._settle(each, Outcome(value, 'error' if error else '', error))
    except (EOFError, OSError):
      if each.units:
        self._settle(each, Outcome(None, 'error', 'The worker died.'))
      self._discard(each)

  def _settle(self, each: _Worker, outcome: Outcome) -> None:
    unit = each.units.popleft()
    unit.job.settle(unit.place, outcome)
    each.since = time.monotonic()

  def _enforce(self) -> None:
    """Ends what is over its deadline, and frees what waits behind the slow."""
    now = time.monotonic()
    for job in self._jobs:
      if now >= job.deadline:
        for place in range(len(job.outcomes)):
          job.settle(place, Outcome(None, 'timeout'))
    num_slow = sum(w.alone for w in self._workers)
    for each in [w for w in self._workers if w.units or w.alone]:
      age = now - each.since
      if age >= self._deadline_s or (
          each.units and each.units[0].job.deadline <= now):
        if each.units:
          self._settle(each, Outcome(None, 'timeout'))
        self._discard(each)
      elif (age >= _SLOW_S and not each.alone and num_slow < _MOST_SLOW
            and (len(each.units) > 1 or self._queue)):
        first = each.units.popleft()
        self._queue.extendleft(reversed(each.units))
        each.units = collections.deque([first])
        each.alone = True
        num_slow += 1
        with contextlib.suppress(OSError):  # its death is noticed elsewhere
          each.connection.send_bytes(pickle.dumps([]))

  def _discard(self, each: _Worker) -> None:
    """Kills a worker; what it had not begun goes to others."""
    self._queue.extendleft(reversed(each.units))
    each.units.clear()
    self._workers.remove(each)
    each.connection.close()
    worker.kill(self._control, each.pid)

  def _patience(self) -> float | None:
    """Seconds until something has to be done even if nothing comes."""
    times = [job.deadline for job in self._jobs]
    for each in self._workers:
      if each.units or each.alone:
        times.append(each.since + self._deadline_s)
        if not each.alone and (len(each.units) > 1 or self._queue):
          times.append(each.since + _SLOW_S)
    soonest = min(times, default=float('inf'))
    if soonest == float('inf'):
      return None
    return max(soonest - time.monotonic(), 0.001)
