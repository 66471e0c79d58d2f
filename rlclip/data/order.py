"""Which example comes when: a function of (seed, step), with no state.

Nothing about the data needs to be stored to resume a run: a step knows its
examples.
"""
import functools

import numpy as np


@functools.lru_cache(maxsize=4)
def order(size: int, *, seed: int, epoch: int) -> np.ndarray:
  """The permutation in which an epoch visits a dataset.

  Args:
    size: examples in the dataset.
    seed: of the run.
    epoch: counted from 0.

  Returns:
    int64[size], read-only: a permutation of range(size), the same on every
    machine.

  Raises:
    ValueError: `size` below 1.
  """
  if size < 1:
    raise ValueError(
        f'order needs at least 1 example, got {size}. Check the split and the '
        'filters of the task.')
  # RandomState's stream is frozen for good; Generator's may change with numpy.
  bits = np.random.MT19937(np.random.SeedSequence((seed, epoch)))
  permutation = np.random.RandomState(bits).permutation(size)
  permutation.setflags(write=False)
  return permutation


def indices_at(step: int, batch: int, size: int, *, seed: int) -> np.ndarray:
  """The examples of one step.

  The epochs' permutations stand end to end, and step i takes places
  [i * batch, (i + 1) * batch) of that line. A batch may therefore cross into
  the next epoch, and no example is skipped at an epoch's end.

  Args:
    step: counted from 0.
    batch: examples a step; may exceed `size`.
    size: examples in the dataset.
    seed: of the run.

  Returns:
    int64[batch] indices into the dataset.

  Raises:
    ValueError: a negative step, or a batch or size below 1.
  """
  if step < 0 or batch < 1 or size < 1:
    raise ValueError(
        'indices_at needs step >= 0, batch >= 1 and size >= 1, got '
        f'{step}, {batch} and {size}. Check the split and the filters of the '
        'task.')
  first, last = step * batch, (step + 1) * batch
  epochs = range(first // size, (last - 1) // size + 1)
  line = np.concatenate([order(size, seed=seed, epoch=e) for e in epochs])
  start = first - epochs[0] * size
  return line[start:start + batch]
