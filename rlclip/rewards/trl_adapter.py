"""Runs reward functions that were written for TRL, unchanged.

Such a function takes lists (`prompts, completions, completion_ids, **columns`)
and returns a list of floats and Nones.
"""
import asyncio
import inspect
from typing import Callable, Sequence

from rlclip import rewards

_OWN = ('prompts', 'completions', 'completion_ids')


def adapt(function: Callable[..., Sequence[float | None]], *,
          chat: bool = False) -> rewards.RewardFunction:
  """Makes a reward function of one that TRL would call.

  It is called with one sample at a time, for a worker scores one answer: a
  function that compares the samples of its batch does not fit. There is no
  trainer, so no `trainer_state`.

  Args:
    function: may be a coroutine function.
    chat: whether it expects chat messages: the completion is one of the
      assistant, the prompt's text, chat template and all, one of the user.
      Else both are texts.
  """
  name = getattr(function, '__name__', str(function))

  def reward(prompt: str, completion: str, tokens, **fields) -> float | None:
    if chat:
      prompt = [{'role': 'user', 'content': prompt}]
      completion = [{'role': 'assistant', 'content': completion}]
    columns = {k: [v] for k, v in fields.items() if k not in _OWN}
    values = function(
        prompts=[prompt], completions=[completion],
        completion_ids=[list(tokens)], **columns)
    if inspect.isawaitable(values):
      values = asyncio.run(_wait_for(values))
    if len(values) != 1:
      raise ValueError(
          f'Expected 1 reward of {name!r} for 1 completion, got '
          f'{len(values)}. Return a list as long as `completions`.')
    return values[0]

  return reward


async def _wait_for(values):
  return await values
