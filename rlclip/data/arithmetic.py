"""Sums of several operands with visible working, for models trained from zero.

A problem and its working:

  347+058+926=      51014000 11303110 #1331

Each block adds the next operand to the sum so far, column by column from the
ones up; a column is its digit and its carry. Here 7+8=15 is `51`, 4+5+1=10 is
`01`, 3+0+1=4 is `40`, and `00` tops it off: 405, read backwards. The second
block adds 926, and the answer stands behind `#`. Widths are fixed (operands
padded with zeros), so that every column is found at the same distance.
"""
import random
from typing import Sequence

from rlclip.data import splits, tasks

ALPHABET = '0123456789+= #'  # of prompts and completions
MARKER = '#'


@tasks.register('arithmetic')
def arithmetic(
    *, num_operands: int | Sequence[int] = (3, 4),
    num_digits: int | Sequence[int] = (2, 3), num_train: int = 1 << 20,
    num_test: int = 1 << 12, seed: int = 0,
) -> tasks.Task:
  """Sums with carries; prompts are plain text over `ALPHABET`.

  An example is a function of (seed, split, index). Train and test share no
  problem: a hash of the problem decides its split.

  Args:
    num_operands: how many, or the least and the most.
    num_digits: of an operand, or the least and the most.
    num_train: size of the training split; problems may repeat.
    num_test: size of the test split.
    seed: of the examples.
  """
  few, many = splits.bounds('num_operands', num_operands, lowest=2)
  short, long = splits.bounds('num_digits', num_digits, lowest=1)
  width = long + 1
  if many * (10**long - 1) >= 10**width:
    raise ValueError(
        f'Expected sums of at most {width} digits, got {many} operands of '
        f'{long}. Use at most 10 operands.')

  def operands(rng: random.Random) -> tuple[int, ...]:
    count, digits = rng.randint(few, many), lambda: rng.randint(short, long)
    return tuple(_number(rng, digits()) for _ in range(count))

  def example(split: str, index: int) -> tasks.Example:
    terms = splits.draw(operands, split, index, seed=seed)
    problem = '+'.join(f'{term:0{long}d}' for term in terms) + '='
    return {
        'id': f'arithmetic-{split}-{seed}-{index}', 'problem': problem,
        'answer': str(sum(terms)), 'operands': terms, 'width': width,
        'marker': MARKER}

  sizes = {'train': num_train, 'test': num_test}

  def examples(split: str):
    tasks.check_split('arithmetic', split, tuple(sizes))
    return tasks.Examples(sizes[split], lambda i: example(split, i))

  return tasks.Task(
      name='arithmetic', reward='arithmetic', splits=tuple(sizes),
      examples=examples, messages=lambda e: e['problem'],
      gold=lambda e: e['answer'], demonstration=demonstration,
      alphabet=ALPHABET)


def demonstration(
    example: tasks.Example, rng: random.Random, slip_rate: float = 0.0) -> str:
  """Works an example of `arithmetic` out, perhaps with slips.

  At each column, with probability `slip_rate`, the carry is forgotten (where
  there is one to forget, and by a coin's toss) or the digit is one off.
  Whatever is written is carried on, so the answer agrees with the working, as
  in texts that people write. Two slips may cancel, but rarely do.

  Args:
    example: of the task.
    rng: of the slips.
    slip_rate: chance of a slip at a column, in [0, 1].

  Returns:
    The completion, without eos.
  """
  if not 0 <= slip_rate <= 1:
    raise ValueError(f'Expected a slip_rate in [0, 1], got {slip_rate}.')
  width = example['width']
  first, *rest = example['operands']
  digits = _columns(first, width)
  blocks = []
  for operand in rest:
    carry, block, total = 0, '', []
    for have, add in zip(digits, _columns(operand, width)):
      carry, digit = divmod(have + add + carry, 10)
      if rng.random() < slip_rate:
        if carry and rng.random() < 0.5:
          carry = 0
        else:
          digit = (digit + rng.choice((-1, 1))) % 10
      block += f'{digit}{carry}'
      total.append(digit)
    digits = total
    blocks.append(block)
  answer = int(''.join(map(str, reversed(digits))))
  return f'{" ".join(blocks)} {MARKER}{answer}'


def _columns(number: int, width: int) -> list[int]:
  """Digits from the ones up."""
  return [number // 10**place % 10 for place in range(width)]


def _number(rng: random.Random, digits: int) -> int:
  """A number of exactly so many digits; one digit may be 0."""
  low = 10**(digits - 1) if digits > 1 else 0
  return rng.randint(low, 10**digits - 1)
