"""Reward functions by name, and the pool of processes that runs them.

A reward function takes `(prompt, completion, tokens, **fields)`: the prompt's
text, the completion's text, its token ids, and the example's own fields as
keywords. It returns a float, or None where the answer cannot be scored (an
unreadable gold answer, say), and runs in a worker process that has no jax.

To add one, write it into a file of this package with `@rewards.register`.
"""
import functools
import importlib
import inspect
import pkgutil
from typing import Protocol, Sequence

from rlclip import registry


class RewardFunction(Protocol):
  """Scores one completion; None where it cannot be scored."""

  def __call__(
      self, prompt: str, completion: str, tokens: Sequence[int], **fields
  ) -> float | None:
    ...


_REGISTRY: registry.Registry[RewardFunction] = registry.Registry(
    'reward', __name__)
register = _REGISTRY.register


def names() -> tuple[str, ...]:
  """Names of all reward functions in this package, sorted."""
  return _REGISTRY.names()


def get(name: str) -> RewardFunction:
  """The reward function called `name`.

  Args:
    name: a registered name, with numbers for its keywords where wanted, as in
      'repetition(ngram_size=4)'; 'package.module:function' for a function that
      lives elsewhere; 'trl:package.module:function' for one written for TRL,
      with texts, and 'trl_chat:' for one that expects chat messages.

  Raises:
    ValueError: no such reward; it says which there are.
  """
  kind, _, rest = name.partition(':')
  if kind in ('trl', 'trl_chat') and ':' in rest:
    trl_adapter = importlib.import_module(f'{__name__}.trl_adapter')
    return trl_adapter.adapt(_from_elsewhere(rest), chat=kind == 'trl_chat')
  if rest:
    return _from_elsewhere(name)
  plain, numbers = registry.parse(name)
  function = _REGISTRY[plain]
  known = [
      p.name for p in inspect.signature(function).parameters.values()
      if p.kind == p.KEYWORD_ONLY and isinstance(p.default, (int, float))]
  if not set(numbers) <= set(known):
    raise ValueError(
        f'Reward {plain!r} takes the numbers {known}, got {name!r}.')
  return functools.partial(function, **numbers) if numbers else function


def _from_elsewhere(name: str):
  module, _, attribute = name.partition(':')
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
