"""Which example stands where: a function of (seed, place), with no state.

All that a run has to remember of its data is how many places it has taken.
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


def indices_at(
    first: int, count: int, size: int, *, seed: int) -> np.ndarray:
  """The examples at some places of the line in which training meets them.

  The epochs' permutations stand end to end in that line. A batch may therefore
  cross into the next epoch, and no example is skipped at an epoch's end.

  Args:
    first: place, counted from 0.
    count: examples; may exceed `size`.
    size: examples in the dataset.
    seed: of the run.

  Returns:
    int64[count] indices into the dataset, of places [first, first + count).

  Raises:
    ValueError: a negative place, or a count or size below 1.
  """
  if first < 0 or count < 1 or size < 1:
    raise ValueError(
        'indices_at needs first >= 0, count >= 1 and size >= 1, got '
        f'{first}, {count} and {size}. Check the split and the filters of the '
        'task.')
  epochs = range(first // size, (first + count - 1) // size + 1)
  line = np.concatenate([order(size, seed=seed, epoch=e) for e in epochs])
  start = first - epochs[0] * size
  return line[start:start + count]
