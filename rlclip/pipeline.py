"""Rollouts ahead of the learner: one thread that owns the sampler.

The rollouts of step n are sampled with the weights of version
max(0, n - 1 - s), s = `max_staleness`: while the learner makes version n, the
sampler is at most s batches ahead. The lag is fixed, and not whatever is ready
by chance, so that the same seed gives the same curve.

Whatever touches the sampler (new weights, rollouts, evaluation) is a job, and
jobs run in the order they were handed in. With s = 0 each runs where it is
handed in, without a thread.
"""
import collections
from concurrent import futures
from typing import Callable, Sequence, TypeVar

import jax
import jax.numpy as jnp

from rlclip.rollouts import Collected
from rlclip.types import Params

T = TypeVar('T')


class Pipeline:
  """The sampler's jobs, and the rollouts that wait for the learner.

  The learner's thread makes all calls. An error of a job is raised, as it is,
  by the next call that waits for one; no later job runs.
  """

  def __init__(self, collect: Callable[[int], Collected],
               load_weights: Callable[[Params, int], None], *,
               max_staleness: int, num_steps: int,
               in_thread: bool | None = None):
    """Starts the thread, if there is one, and no work: see `begin`.

    Args:
      collect: the place of a step's first prompt -> the step's rollouts.
      load_weights: of the sampler.
      max_staleness: s, steps sampled ahead, and versions the sampler is behind.
      num_steps: of the run; nothing is sampled beyond.
      in_thread: whether jobs have a thread of their own; None where s > 0.
        It changes no result.

    Raises:
      ValueError: s > 0 in a run of several processes, whose threads would
        hand work to the devices in orders that differ.
    """
    if max_staleness and jax.process_count() > 1:
      raise ValueError(
          f'config.rollout.max_staleness must be 0 in a run of '
          f'{jax.process_count()} processes, got {max_staleness}. Set it to 0, '
          f'or run one process.')
    self._collect, self._load_weights = collect, load_weights
    self._max_staleness, self._num_steps = max_staleness, num_steps
    self._in_thread = bool(max_staleness) if in_thread is None else in_thread
    self._executor = (
        futures.ThreadPoolExecutor(1, thread_name_prefix='sampler')
        if self._in_thread else _Inline())
    self._waiting: collections.deque[futures.Future] = collections.deque()
    self._taken = self._place = 0
    self._failure: BaseException | None = None

  def begin(self, step: int, place: int,
            pending: Sequence[Collected] = ()) -> None:
    """Goes on after a step.

    Args:
      step: whose weights were loaded last.
      place: of the first prompt that no step up to this one was trained on.
      pending: rollouts of the steps that follow, sampled with older weights.
    """
    self._taken = step
    self._place = place + sum(len(each.groups) for each in pending)
    for each in pending:
      self._waiting.append(futures.Future())
      self._waiting[-1].set_result(each)

  def load(self, params: Params, version: int) -> None:
    """Hands new weights to the sampler, for all jobs that follow.

    The learner may donate `params` as soon as this returns. Up to s + 1 copies
    wait in line beside the sampler's own.
    """
    if self._in_thread:
      params = jax.tree.map(jnp.copy, params)
    self._submit(self._load_weights, params, version)

  def run(self, function: Callable[..., T], *args) -> T:
    """Runs what needs the sampler, with the weights loaded last; waits."""
    return self._submit(function, *args).result()

  def take(self) -> Collected:
    """The next step's rollouts; has s steps more sampled meanwhile.

    Call it after `load` of the last step's weights: so every step gets the
    version it should.
    """
    ahead = min(self._taken + 1 + self._max_staleness, self._num_steps)
    while self._taken + len(self._waiting) < ahead:
      self._waiting.append(self._submit(self._next))
    self._taken += 1
    return self._waiting.popleft().result()

  def pending(self) -> list[Collected]:
    """Rollouts of the steps that follow the last one taken; waits for them.

    All are of older weights than those loaded last, in case they were loaded
    after the last `take`: with them and these, a later `begin` goes on alike.
    """
    return [future.result() for future in self._waiting]

  def close(self) -> None:
    """Drops jobs that have not begun, waits for the one that has, ends."""
    self._executor.shutdown(wait=True, cancel_futures=True)

  def _submit(self, function, *args):
    return self._executor.submit(self._job, function, *args)

  def _job(self, function, *args):
    # A step after one that failed would have the wrong place or weights.
    if self._failure is not None:
      raise self._failure
    try:
      return function(*args)
    except BaseException as error:
      self._failure = error
      raise

  def _next(self):
    """One step's rollouts; the place is known once those before are drawn."""
    collected = self._collect(self._place)
    self._place += len(collected.groups)
    return collected


class _Inline:
  """An executor whose jobs run, and fail, where they are handed in."""

  def submit(self, function, *args) -> futures.Future:
    future = futures.Future()
    future.set_result(function(*args))
    return future

  def shutdown(self, **unused_options) -> None:
    pass
