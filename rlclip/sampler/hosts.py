"""One sampler a process: each draws its share, and all get everything.

Prompts are cut into as many runs as there are processes, so that a group stays
together and is computed once. A draw depends on its request alone, so that the
result does not depend on the number of processes.
"""
from typing import Sequence

import jax
from jax.experimental import multihost_utils
import numpy as np

from rlclip import distributed
from rlclip.types import Completion, Params, Request, Sampler


class Hosts:
  """A Sampler over the samplers of all processes."""

  def __init__(self, own: Sampler, shardings: Params):
    """Wraps a sampler that uses this process's devices and no others.

    Args:
      own: of the same kind and the same seed in every process.
      shardings: of the parameters on this process's devices.
    """
    self._own, self._shardings = own, shardings

  def load_weights(self, params: Params, version: int) -> None:
    """Gathers what is laid over processes, and loads all of it here."""
    lay = lambda x, sharding: jax.device_put(_whole(x), sharding)
    self._own.load_weights(
        jax.tree.map(lay, params, self._shardings), version)

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Every process asks for the same, and gets all of it, in order.

    Raises:
      ValueError: where the processes ask for different requests.
    """
    distributed.require_same(
        {'number of requests': len(requests),
         'sum of ids': sum(request.id for request in requests),
         'sum of tokens': sum(int(r.prompt.sum()) for r in requests)},
        'requests of completions')
    bounds = shares(requests, jax.process_count())
    first, last = bounds[jax.process_index()]
    drawn = distributed.exchange(self._own.generate(requests[first:last]))
    return [completion for share in drawn for completion in share]


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


def _whole(array):
  """The array, out of what is laid over the devices of all processes."""
  if not isinstance(array, jax.Array) or array.is_fully_addressable:
    return array
  if array.is_fully_replicated:
    return array.addressable_data(0)
  return multihost_utils.process_allgather(array, tiled=True)
