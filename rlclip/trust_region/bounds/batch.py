"""Bounds searched anew for every batch."""
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs, log_lower,
                                               Region, REGISTRY)

Array = Any

_COUNTS = ('clipped', 'kept')


@REGISTRY.register('batch_balanced')
@dataclasses.dataclass(frozen=True)
class BatchBalanced(Bounds):
  """BAPO: widens upward until good tokens have their share of the loss.

  c_low <= w <= c_high, the same for the whole batch, from the first pair with
  P / (P + Q) >= target_share, where
  P = sum over A > 0 of A min(w, c_high), Q = sum over A < 0 of |A| max(w,
  c_low). Pairs are tried in this order: c_high in steps of 0.05 with c_low at
  its start; then, c_high at its end, c_low in steps of 0.02. Where no pair
  does, the last. All pairs are evaluated at once, on the device. A width other
  than 1 scales what was found, not the search.

  As published, a blocked token counts with its clipped value. Then a higher
  c_low makes Q larger, so the second half of the search never reaches its
  target and runs to its end. With counts = 'kept' blocked tokens count 0: the
  share is that of the gradient, and a higher c_low helps.

  Attributes:
    target_share: the paper's rho0.
    low_range: first and last c_low.
    high_range: first and last c_high.
    counts: 'clipped' or 'kept'.

  Source: arXiv 2510.18927 (BAPO), second-hand: rho0 is 0.4 in notes on the
  paper and 0.5 in its README. The paper weights tokens by their probability,
  which is read here as the mean over samples. Its code disagrees with it:
  there c_low moves first and down, in [0.6, 0.8], c_high in [1.2, 2.0], and
  the target is P / Q = 1. 'kept' is ours.
  """
  target_share: float = 0.4
  low_range: tuple[float, float] = (0.6, 0.9)
  high_range: tuple[float, float] = (1.2, 3.0)
  counts: str = 'clipped'
  whole_batch: ClassVar[bool] = True

  def __post_init__(self):
    if not 0 < self.target_share < 1:
      raise ValueError(
          f'BatchBalanced needs a target_share in (0, 1), got '
          f'{self.target_share}.')
    (low, low_end), (high, high_end) = self.low_range, self.high_range
    if not 0 < low <= low_end <= 1 <= high <= high_end < np.inf:
      raise ValueError(
          f'BatchBalanced needs 0 < low_range <= 1 <= high_range < inf, each '
          f'rising, got {self.low_range} and {self.high_range}.')
    if self.counts not in _COUNTS:
      raise ValueError(
          f'BatchBalanced.counts must be one of {", ".join(_COUNTS)}, got '
          f'{self.counts!r}.')

  def __call__(self, inputs: BoundsInputs) -> Region:
    # Mask before exp: what stands at masked places is free.
    ratio = jnp.exp(jnp.where(inputs.mask, inputs.log_ratio, 0.0))
    advantages = jnp.where(inputs.mask, inputs.advantages, 0.0)
    lows = jnp.asarray(_grid(*self.low_range, 0.02), ratio.dtype)
    highs = jnp.asarray(_grid(*self.high_range, 0.05), ratio.dtype)
    up = self._part(jnp.maximum(advantages, 0), ratio, highs, jnp.minimum)
    down = self._part(jnp.maximum(-advantages, 0), ratio, lows, jnp.maximum)
    # The path: all of highs at the first low, then the other lows.
    last_high = highs.size - 1
    up = jnp.append(up, jnp.full(lows.size - 1, up[-1]))
    down = jnp.append(jnp.full(last_high, down[0]), down)
    reached = up >= self.target_share * (up + down)
    step = jnp.where(jnp.any(reached), jnp.argmax(reached), reached.size - 1)
    low = lows[jnp.maximum(step - last_high, 0)]
    high = highs[jnp.minimum(step, last_high)]
    return Region(log_lower((1 - low) * inputs.width),
                  jnp.log1p((high - 1) * inputs.width))

  def interval(self) -> tuple[float, float]:
    """The widest there is: the first c_low, the last c_high."""
    return self.low_range[0], self.high_range[1]

  def _part(self, weights, ratio, bounds, clip) -> Array:
    """Sum of weights times clipped ratios, for each of the bounds."""
    def total(bound):
      kept = clip(ratio, bound)
      if self.counts == 'kept':
        kept = jnp.where(kept == ratio, ratio, 0.0)
      return jnp.sum(weights * kept)
    return jax.vmap(total)(bounds)


def _grid(start: float, end: float, step: float) -> np.ndarray:
  return start + step * np.arange(round((end - start) / step) + 1)
