"""Generated examples: functions of (seed, split, index), splits disjoint."""
import hashlib
import random
from typing import Callable, Sequence, TypeVar

T = TypeVar('T')

_TEST_SHARE = 8  # one problem in so many belongs to the test split
_MOST_DRAWS = 10_000


def split_of(problem) -> str:
  """The split a problem belongs to, whatever the seed: by its hash."""
  digest = hashlib.blake2b(repr(problem).encode(), digest_size=8).digest()
  is_test = int.from_bytes(digest, 'big') % _TEST_SHARE == 0
  return 'test' if is_test else 'train'


def draw(
    make: Callable[[random.Random], T], split: str, index: int, *, seed: int,
    problem: Callable[[T], object] = lambda drawn: drawn) -> T:
  """Draws until the problem belongs to the split.

  Args:
    make: draws one.
    split: 'train' or 'test'.
    index: in the split.
    seed: of the examples.
    problem: from what was drawn to what must not be in both splits.

  Returns:
    The draw, always the same for the same arguments.

  Raises:
    ValueError: the options leave no problems for the split.
  """
  # Seeded with text, random.Random hashes it: the same on every machine.
  rng = random.Random(f'{seed}/{split}/{index}')
  for _ in range(_MOST_DRAWS):
    drawn = make(rng)
    if split_of(problem(drawn)) == split:
      return drawn
  raise ValueError(
      f'Expected problems for the split {split!r}, found none in '
      f'{_MOST_DRAWS} draws. Widen the ranges of the task\'s options.')


def bounds(
    option: str, value: int | Sequence[int], *, lowest: int
) -> tuple[int, int]:
  """Reads an option that is a number or a pair (least, most)."""
  pair = (value, value) if isinstance(value, int) else tuple(value)
  if len(pair) != 2 or not lowest <= pair[0] <= pair[1]:
    raise ValueError(
        f'Expected {option} to be a number of at least {lowest}, or a pair '
        f'(least, most), got {value!r}.')
  return pair
