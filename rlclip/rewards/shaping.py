"""Penalties that the policy is trained with and the verifier does not give."""
import numpy as np


def overlong_penalty(
    lengths: np.ndarray, *, max_length: int, buffer: int,
    factor: float = 1.0) -> np.ndarray:
  """What a completion loses for coming near the limit of its length.

  0 up to max_length - buffer, then linear down to -factor at max_length:
  min(-exceed / buffer * factor, 0), exceed = length - (max_length - buffer).

  Args:
    lengths: int[...], of completions, in tokens, the stop token counted.
    max_length: the longest that is sampled, in tokens.
    buffer: tokens before the limit in which the penalty grows.
    factor: the penalty at the limit, in units of reward.

  Returns:
    float64[...], between -factor and 0.

  Raises:
    ValueError: a buffer outside [1, max_length], or a factor not above 0.

  Source: Yu et al., arXiv 2503.14476 (DAPO, soft overlong punishment);
  buffer 512 of 2,048 and factor 1 in the scripts of RPG (arXiv 2505.17508).
  """
  if not 1 <= buffer <= max_length or not factor > 0:
    raise ValueError(
        f'overlong_penalty needs 1 <= buffer <= max_length = {max_length} and '
        f'factor > 0, got {buffer} and {factor}. Set '
        f'config.reward.overlong_buffer to 0 for no penalty.')
  exceed = np.asarray(lengths) - (max_length - buffer)
  return np.clip(-exceed / buffer, -1.0, 0.0) * factor
