"""Reward functions by name, and the pool of processes that runs them.

A reward function takes `(prompt, completion, tokens, **fields)`: the prompt's
text, the completion's text, its token ids, and the example's own fields as
keywords. It returns a float, or None where the answer cannot be scored (an
unreadable gold answer, say), and runs in a worker process that has no jax.

To add one, write it into a file of this package with `@registry.register`.
"""
import importlib
import pkgutil
from typing import Protocol, Sequence

from rlclip.registry import Registry


class RewardFunction(Protocol):
  """Scores one completion; None where it cannot be scored."""

  def __call__(
      self, prompt: str, completion: str, tokens: Sequence[int], **fields
  ) -> float | None:
    ...


_REGISTRY: Registry[RewardFunction] = Registry('reward', __name__)
register = _REGISTRY.register


def names() -> tuple[str, ...]:
  """Names of all reward functions in this package, sorted."""
  return _REGISTRY.names()


def get(name: str) -> RewardFunction:
  """The reward function called `name`.

  Args:
    name: a registered name, or 'package.module:function' for a function that
      lives elsewhere.

  Raises:
    ValueError: no such reward; it says which there are.
  """
  module, colon, attribute = name.partition(':')
  if not colon:
    return _REGISTRY[name]
  try:
    return getattr(importlib.import_module(module), attribute)
  except (ImportError, AttributeError) as error:
    raise ValueError(
        f'Expected a reward \'package.module:function\', got {name!r}: '
        f'{error}. Check the spelling and PYTHONPATH.') from error


_MODULES = frozenset(m.name for m in pkgutil.iter_modules(__path__))


def __getattr__(name):
  if name in _MODULES:
    return importlib.import_module(f'{__name__}.{name}')
  raise AttributeError(f'module {__name__} has no attribute {name!r}')
