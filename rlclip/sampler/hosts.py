"""One sampler a process: each draws its share, and all get everything.

Prompts are cut into as many runs as there are processes, so that a group stays
together and is computed once. A draw depends on its request alone, so that the
result does not depend on the number of processes.
"""
from typing import Sequence

import jax
from jax.experimental import multihost_utils
import numpy as np

from rlclip.types import Completion, Params, Request, Sampler

_FINISHES = ('stop', 'length', 'error')


class Hosts:
  """A Sampler over the samplers of all processes."""

  def __init__(self, own: Sampler):
    """Wraps a sampler that uses this process's devices and no others.

    Args:
      own: of the same kind and the same seed in every process.
    """
    self._own = own

  def load_weights(self, params: Params, version: int) -> None:
    """Gathers what is laid over processes, and loads all of it here."""
    # Of arrays that are whole here already no process needs the others.
    here = lambda x: (
        multihost_utils.process_allgather(x, tiled=True)
        if isinstance(x, jax.Array) and not x.is_fully_addressable else x)
    self._own.load_weights(jax.tree.map(here, params), version)

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Every process asks for the same, and gets all of it, in order.

    Raises:
      ValueError: where the processes ask for different requests.
    """
    ids = np.array([request.id for request in requests], np.int64)
    _check_same(ids, requests)
    bounds = shares(requests, jax.process_count())
    first, last = bounds[jax.process_index()]
    drawn = self._own.generate(requests[first:last])
    return _exchange(drawn, bounds)


def shares(requests: Sequence[Request], count: int) -> list[tuple[int, int]]:
  """Cuts requests into `count` runs that leave equal prompts together.

  Returns:
    (first, last + 1) a process; some may be empty.
  """
  starts = [i for i, request in enumerate(requests)
            if i == 0 or not np.array_equal(
                request.prompt, requests[i - 1].prompt)]
  cuts = [starts[i * len(starts) // count] if starts else 0
          for i in range(count)] + [len(requests)]
  return list(zip(cuts, cuts[1:]))


def _check_same(ids, requests):
  mine = np.array([len(ids), ids.sum() if len(ids) else 0, sum(
      int(np.sum(request.prompt)) for request in requests)], np.int64)
  # 64 bits survive as two halves.
  everyone = multihost_utils.process_allgather(mine.view(np.int32))
  if (np.asarray(everyone) != mine.view(np.int32)).any():
    raise ValueError(
        f'Processes ask for different completions: this one for {len(ids)} '
        f'requests. Every process must call generate() with the same.')


def _exchange(drawn, bounds) -> list[Completion]:
  """All processes' completions, in the order of the requests."""
  most = max(last - first for first, last in bounds)
  longest = multihost_utils.process_allgather(np.int32(
      max((len(c.tokens) for c in drawn), default=0))).max()
  tokens = np.zeros((most, longest), np.int32)
  logps = np.zeros((most, longest), np.float32)
  rest = np.zeros((most, 3), np.int32)  # length, finish, version
  for i, completion in enumerate(drawn):
    length = len(completion.tokens)
    tokens[i, :length], logps[i, :length] = completion.tokens, completion.logps
    rest[i] = length, _FINISHES.index(completion.finish), completion.version
  tokens, logps, rest = multihost_utils.process_allgather((tokens, logps, rest))
  count = len(bounds)
  tokens, logps, rest = (
      np.asarray(x).reshape(count, most, -1) for x in (tokens, logps, rest))
  completions = []
  for process, (first, last) in enumerate(bounds):
    for i in range(last - first):
      length, finish, version = map(int, rest[process, i])
      completions.append(Completion(
          tokens[process, i, :length].copy(), logps[process, i, :length].copy(),
          _FINISHES[finish], version))
  return completions
