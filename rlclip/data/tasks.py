"""Tasks by name: where examples come from, how they are asked, what is right.

To add a task, write a function from options to a `Task` into a file of this
package, with `@tasks.register(name)`.
"""
import collections.abc
import dataclasses
import functools
import inspect
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from rlclip.data import order as order_lib
from rlclip.data.tokenizer import Messages, Tokenizer
from rlclip.registry import Registry
from rlclip.types import Prompt

Example = Mapping[str, Any]

# A reward's own arguments: a column of that name cannot be a field too.
_OF_REWARDS = frozenset({'prompt', 'completion', 'tokens'})


@dataclasses.dataclass(frozen=True)
class Task:
  """A source of problems whose answers a program can check.

  Attributes:
    name: as registered.
    reward: name of the reward function its answers are scored by.
    splits: names of its splits, such as 'train' and 'test'.
    examples: from a split to its examples, with random access. An example has
      at least 'id', unique in the split, and 'problem', its text.
    messages: from an example to chat messages, or to plain text for models
      without a chat template.
    gold: from an example to the right answer, as the reward expects it.
    demonstration: `(example, rng, slip_rate) -> completion`, a worked answer
      for supervised learning; None where the task has none.
    alphabet: characters of its prompts and answers, for a character
      tokenizer; empty where texts are open.
    order: `(first, count, seed) -> indices` into the training split, for a task
      that is not visited evenly; None takes `order.indices_at`.
  """
  name: str
  reward: str
  splits: tuple[str, ...]
  examples: Callable[[str], 'Examples']
  messages: Callable[[Example], str | Messages]
  gold: Callable[[Example], str]
  demonstration: Callable[..., str] | None = None
  alphabet: str = ''
  order: Callable[[int, int, int], np.ndarray] | None = None


_REGISTRY: Registry[Callable[..., Task]] = Registry('task', 'rlclip.data')
register = _REGISTRY.register


def names() -> tuple[str, ...]:
  """Names of all tasks, sorted."""
  return _REGISTRY.names()


def get(name: str, **options) -> Task:
  """Makes the task called `name`.

  Args:
    name: a registered name.
    **options: of that task; `options_of` lists them with their defaults.

  Raises:
    ValueError: an unknown task or option, or data that is not there.
  """
  known = options_of(name)
  unknown = sorted(set(options) - set(known))
  if unknown:
    raise ValueError(
        f'Unknown options {unknown} for task {name!r}. Known: '
        f'{sorted(known)}.')
  return _REGISTRY[name](**options)


def options_of(name: str) -> dict[str, Any]:
  """A task's options and their defaults."""
  parameters = inspect.signature(_REGISTRY[name]).parameters
  return {key: p.default for key, p in parameters.items()}


def indices_at(
    task: Task, first: int, count: int, *, seed: int) -> np.ndarray:
  """The training examples at places [first, first + count) of a run's line.

  A function of seed and place: all that a run remembers is its place.

  Args:
    task: whose examples.
    first: place, counted from 0.
    count: examples.
    seed: of the run.

  Returns:
    int64[count] indices into `task.examples('train')`.
  """
  if task.order is not None:
    return task.order(first, count, seed)
  size = len(task.examples('train'))
  return order_lib.indices_at(first, count, size, seed=seed)


def ask(problem: str, instruction: str = '', *, system: str = '',
        chat: bool = True, end: str = '\n\n') -> str | Messages:
  """A problem as chat messages, or as plain text that ends in `end`.

  The chat template itself is applied once, by `Tokenizer.encode_prompt`.
  """
  text = '\n\n'.join(filter(None, (problem, instruction)))
  if not chat:
    return '\n\n'.join(filter(None, (system, text))) + end
  head = [{'role': 'system', 'content': system}] if system else []
  return [*head, {'role': 'user', 'content': text}]


def make_prompt(
    task: Task, example: Example, tokenizer: Tokenizer, **chat_options
) -> Prompt:
  """Tokenizes one example; its fields go to the reward, `gold` among them.

  Args:
    task: the example's.
    example: of `task.examples(split)`.
    tokenizer: of the model that will answer.
    **chat_options: for the chat template, such as enable_thinking=False.
  """
  prompt = task.messages(example)
  tokens = tokenizer.encode_prompt(prompt, **chat_options)
  fields = {k: v for k, v in example.items() if k not in _OF_REWARDS}
  return Prompt(
      id=example['id'], tokens=tokens,
      text=tokenizer.decode(tokens, keep_special=True),
      fields={**fields, 'gold': task.gold(example)})


class Examples(collections.abc.Sequence):
  """A sequence that makes its items when asked, from their index.

  Attributes:
    take: `indices -> items`, which may be faster than one at a time.
  """

  def __init__(self, size: int, make: Callable[[int], Example],
               make_all: Callable[[list[int]], Iterable[Example]] | None = None
               ):
    self._size, self._make = size, make
    self._make_all = make_all or functools.partial(map, make)

  def take(self, indices: Iterable[int]) -> list[Example]:
    """The examples at some indices from 0 on, in that order."""
    return list(self._make_all([int(i) for i in indices]))

  def __len__(self) -> int:
    return self._size

  def __getitem__(self, index):
    if isinstance(index, slice):
      return self.take(range(*index.indices(self._size)))
    if not -self._size <= index < self._size:
      raise IndexError(
          f'Expected an index below {self._size}, got {index}.')
    return self._make(int(index) % self._size)


def check_split(task: str, split: str, splits: Sequence[str]) -> None:
  """Raises a ValueError that names the splits, where `split` is not one."""
  if split not in splits:
    raise ValueError(
        f'Expected a split of task {task!r}, one of {list(splits)}; got '
        f'{split!r}.')


def check_no_slips(slip_rate: float) -> None:
  """For demonstrations that are texts of people: they have no steps to spoil.

  Raises:
    ValueError: a slip_rate other than 0.
  """
  if slip_rate:
    raise ValueError(
        f'Expected a slip_rate of 0 for demonstrations out of a data set, got '
        f'{slip_rate}. Set config.warm_start.slip_rate to 0.')
