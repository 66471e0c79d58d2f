"""Several tasks in one, each with its weight in every stretch of training."""
import functools
from typing import Any, Mapping, NamedTuple

import numpy as np

from rlclip.data import order, tasks

# Weights hold exactly in every block of so many places, so a weight is a
# multiple of a thousandth.
_BLOCK = 1000
_PART = 'mixture_part'  # the field that says whose an example is


class _Part(NamedTuple):
  label: str
  task: tasks.Task
  places: int  # of a block


@tasks.register('mixture')
def mixture(
    *, parts: Mapping[str, Any] | None = None, data_dir: str = '',
) -> tasks.Task:
  """Tasks that are met as often as their weights say.

  Training meets the parts in blocks of 1000 places, each with exactly its
  weight's share, in an order drawn from (seed, block). Within a part, examples
  come in the part's own order from (seed, epoch): a small part starts its next
  epoch while a large one is in its first. So a place says all.

  The test split has the parts' test splits, evenly spread.

  Args:
    parts: from labels to weights, as {'gsm8k': 0.7, 'math': 0.3}, or to a
      weight with a task's options, as {'easy': {'weight': 1, 'task': 'math',
      'keep': {'level': [1, 2]}}}; a label is the task's name unless one is
      given. Weights are relative.
    data_dir: given to the parts that read files.
  """
  if not parts:
    raise ValueError(
        f'Expected parts with weights, as {{\'gsm8k\': 0.7, \'math\': 0.3}}, '
        f'got {parts!r}.')
  made, weights = [], []
  for label, spec in parts.items():
    options = dict(spec) if isinstance(spec, Mapping) else {'weight': spec}
    weights.append(options.pop('weight', None))
    name = options.pop('task', label)
    if data_dir and 'data_dir' in tasks.options_of(name):
      options.setdefault('data_dir', data_dir)
    made.append(tasks.get(name, **options))
  all_parts = [
      _Part(*each) for each in zip(parts, made, _places(parts, weights))]
  for part in all_parts:
    tasks.check_split(part.label, 'train', part.task.splits)
  rewards = {task.reward for task in made}
  by_label = {part.label: part.task for part in all_parts}
  of = lambda example: by_label[example[_PART]]
  has_test = [part for part in all_parts if 'test' in part.task.splits]
  splits = ('train', 'test') if has_test else ('train',)

  def examples(split):
    tasks.check_split('mixture', split, splits)
    return (_joined(all_parts) if split == 'train' else
            _spread(has_test))

  def demonstration(example, rng, slip_rate=0.0):
    task = of(example)
    if task.demonstration is None:
      raise ValueError(
          f'Expected demonstrations of every part, got none of {task.name!r}.')
    return task.demonstration(example, rng, slip_rate)

  return tasks.Task(
      name='mixture', splits=splits, examples=examples,
      # Where rewards differ, an example's own is among its fields.
      reward=rewards.pop() if len(rewards) == 1 else 'by_example',
      messages=lambda example: of(example).messages(example),
      gold=lambda example: of(example).gold(example),
      demonstration=(
          demonstration if any(task.demonstration for task in made) else None),
      alphabet=_alphabet(made),
      order=functools.partial(_indices_at, all_parts))


def _places(labels, weights) -> list[int]:
  """How many places of a block each part has; largest remainders round up."""
  bad = [f'{label}: {weight!r}' for label, weight in zip(labels, weights)
         if isinstance(weight, bool) or not isinstance(weight, (int, float))
         or not 0 < weight < float('inf')]
  if bad:
    raise ValueError(
        f'Expected a weight above 0 for each part, got {", ".join(bad)}.')
  exact = np.array(weights, np.float64) / sum(weights) * _BLOCK
  places = np.floor(exact).astype(int)
  behind = np.argsort(-(exact - places), kind='stable')
  places[behind[:_BLOCK - places.sum()]] += 1
  for label, count in zip(labels, places):
    if not count:
      raise ValueError(
          f'Expected a weight of at least a thousandth of all for part '
          f'{label!r}, got less. Raise it or leave the part out.')
  return places.tolist()


def _indices_at(parts, first: int, count: int, seed: int) -> np.ndarray:
  """Indices into the parts' training splits, laid end to end."""
  if first < 0 or count < 1:
    raise ValueError(
        f'A mixture needs first >= 0 and count >= 1, got {first} and {count}.')
  sizes = [len(part.task.examples('train')) for part in parts]
  starts = np.cumsum([0, *sizes[:-1]])
  quotas = np.array([part.places for part in parts])
  owners = np.repeat(np.arange(len(parts)), quotas)
  blocks = range(first // _BLOCK, (first + count - 1) // _BLOCK + 1)
  line = np.concatenate([
      owners[order.order(_BLOCK, seed=seed, epoch=block)] for block in blocks])
  begin = first - blocks[0] * _BLOCK
  indices = np.empty(count, np.int64)
  for i, part in enumerate(parts):
    taken = blocks[0] * part.places + np.sum(line[:begin] == i)
    here = np.flatnonzero(line[begin:begin + count] == i)
    if len(here):
      indices[here] = starts[i] + tasks.indices_at(
          part.task, int(taken), len(here), seed=seed)
  return indices


def _marked(part: _Part, example: tasks.Example) -> tasks.Example:
  return {**example, 'id': f'{part.label}/{example["id"]}',
          _PART: part.label, 'reward_name': part.task.reward}


def _joined(parts) -> tasks.Examples:
  """The parts' training splits end to end."""
  splits = [part.task.examples('train') for part in parts]
  ends = np.cumsum([len(split) for split in splits])

  def make(index):
    i = int(np.searchsorted(ends, index, side='right'))
    place = index - (ends[i] - len(splits[i]))
    return _marked(parts[i], splits[i][int(place)])

  return tasks.Examples(int(ends[-1]), make)


def _spread(parts) -> tasks.Examples:
  """The parts' test splits, any stretch with its share of each."""
  splits = [part.task.examples('test') for part in parts]
  places = [(np.arange(len(split)) + 0.5) / len(split) for split in splits]
  owners = np.concatenate([
      np.full(len(split), i) for i, split in enumerate(splits)])
  within = np.concatenate([np.arange(len(split)) for split in splits])
  line = np.argsort(np.concatenate(places), kind='stable')

  def make(index):
    i, place = int(owners[line[index]]), int(within[line[index]])
    return _marked(parts[i], splits[i][place])

  return tasks.Examples(len(line), make)


def _alphabet(made) -> str:
  """Every part's characters, where every part has an alphabet."""
  alphabets = [task.alphabet for task in made]
  return ''.join(dict.fromkeys(''.join(alphabets))) if all(alphabets) else ''
