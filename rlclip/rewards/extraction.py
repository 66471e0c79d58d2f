"""The final answer that a reward reads out of a response, as text.

For people who look at answers, and for majority votes; verdicts do not come
from here. To add one, write a function `(completion, **fields) -> str | None`
with `@extraction.register(<the reward's name>)`, where fields are those of the
example and None says that the response states no answer.
"""
from typing import Callable

from rlclip.registry import Registry
from rlclip.rewards import arithmetic

Extractor = Callable[..., str | None]

_REGISTRY: Registry[Extractor] = Registry('extractor', 'rlclip.rewards')
register = _REGISTRY.register

_LONGEST = 200  # characters of an answer that nothing marks


def get(reward: str) -> Extractor | None:
  """The reading of answers that belongs to a reward, or None."""
  return _REGISTRY[reward] if reward in _REGISTRY else None


@register('math')
def final_answer(completion: str, **fields) -> str | None:
  """What is boxed or marked; else behind 'the answer is'; else a bare line."""
  del fields
  from rlclip.rewards.math import extract  # it takes sympy's second to import
  text, marked = extract.find(completion)
  text = text.strip(' .\n*')  # bold, as in Markdown
  short = '\n' not in text and len(text) <= _LONGEST
  return text if text and (marked or short) else None


@register('arithmetic')
def last_number(completion: str, *, marker: str = '', **fields) -> str | None:
  """The number that the reward of the same name compares."""
  del fields
  number = arithmetic.last_number(completion, marker=marker)
  return None if number is None else str(number)
