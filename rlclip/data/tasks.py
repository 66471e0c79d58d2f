"""Tasks by name: where examples come from, how they are asked, what is right.

To add a task, write a function from options to a `Task` into a file of this
package, with `@tasks.register(name)`.
"""
import collections.abc
import dataclasses
import inspect
from typing import Any, Callable, Mapping, Sequence

from rlclip.data.tokenizer import Messages, Tokenizer
from rlclip.registry import Registry
from rlclip.types import Prompt

Example = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
  """A source of problems whose answers a program can check.

  Attributes:
    name: as registered.
    reward: name of the reward function its answers are scored by.
    splits: names of its splits, such as 'train' and 'test'.
    examples: from a split to its examples, with random access. An example has
      at least 'id', unique in the split.
    messages: from an example to chat messages, or to plain text for models
      without a chat template.
    gold: from an example to the right answer, as the reward expects it.
    demonstration: `(example, rng, slip_rate) -> completion`, a worked answer
      for supervised learning; None where the task has none.
    alphabet: characters of its prompts and answers, for a character
      tokenizer; empty where texts are open.
  """
  name: str
  reward: str
  splits: tuple[str, ...]
  examples: Callable[[str], Sequence[Example]]
  messages: Callable[[Example], str | Messages]
  gold: Callable[[Example], str]
  demonstration: Callable[..., str] | None = None
  alphabet: str = ''


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
  return Prompt(
      id=example['id'], tokens=tokens,
      text=tokenizer.decode(tokens, keep_special=True),
      fields={**example, 'gold': task.gold(example)})


class Examples(collections.abc.Sequence):
  """A sequence that makes its items when asked, from their index."""

  def __init__(self, size: int, make: Callable[[int], Example]):
    self._size, self._make = size, make

  def __len__(self) -> int:
    return self._size

  def __getitem__(self, index):
    if isinstance(index, slice):
      return [self._make(i) for i in range(*index.indices(self._size))]
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
