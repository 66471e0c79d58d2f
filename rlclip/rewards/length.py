"""Rewards for the length of a completion, in tokens."""
from rlclip import rewards
from rlclip.rewards import shaping


@rewards.register('overlong')
def overlong(prompt: str, completion: str, tokens, *, max_length: float = 0,
             buffer: float = 0, **fields) -> float:
  """0 up to max_length - buffer tokens, then linear to -1 at max_length.

  As `shaping.overlong_penalty`, but part of the reward: it is in metrics, and
  in what a group is chosen by.

  Args:
    prompt: not looked at.
    completion: not looked at.
    tokens: of the completion.
    max_length: tokens at which all is lost. To be given.
    buffer: tokens in which the penalty grows. To be given.
    **fields: not looked at.

  Raises:
    ValueError: a buffer outside [1, max_length].
  """
  del prompt, completion, fields
  return float(shaping.overlong_penalty(
      len(tokens), max_length=max_length, buffer=buffer))


@rewards.register('length_deviation')
def length_deviation(prompt: str, completion: str, tokens, *,
                     target_length: float = 0, **fields) -> float:
  """-|length - target_length|, in tokens; its weight is one per token.

  An example may bring a field `target_length` of its own. With a target of 0,
  each token costs.

  Source: Aggarwal and Welleck, arXiv 2503.04697 (LCPO-Exact, there with weight
  0.0003), second-hand.
  """
  del prompt, completion, fields
  return -abs(len(tokens) - float(target_length))
