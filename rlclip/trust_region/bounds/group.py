"""Bounds that follow how rare success was in the row's group."""
import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp

from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs,
                                               check_width, log_lower, Region,
                                               REGISTRY, span)

Array = Any


@REGISTRY.register('group_adaptive')
@dataclasses.dataclass(frozen=True)
class GroupAdaptive(Bounds):
  """The rarer the success in its group, the more room above 1 it gets.

  1 - eps_low <= w <= 1 + eps, with the share s = clip(a / a_max, 0, 1),
  a = r - group mean, a_max = reward_range (k - 1) / k, k scored samples a
  group. With rewards 0 and 1 and c successes, a success has
  s = (k - c) / (k - 1) and a failure 0. For other rewards c is what s implies,
  k - (k - 1) s. By `shape`, and never under eps_low:

    linear      eps = eps_low + (eps_high - eps_low) s
    exact       eps_low + (eps_high - eps_low) ((1 + eps_high)^s - 1) / eps_high
    exp         (1 + eps_high)^s - 1
    normalized  (1 + eps_high)^s / Z - 1, Z its mean over the group
    harmonic    eps_low + (eps_high - eps_low) (1/c - 1/k) / (1 - 1/k)

  The last four come from rho* ~ exp(A / lambda), lambda = a_max / log(1 +
  eps_high). The rewards decide, not the advantages, which may have been
  normalized; a row without a score keeps eps_low.

  Attributes:
    eps_low: width below 1, and above 1 for what is no better than its group.
    eps_high: width above 1 of the only success of its group (with
      'normalized' a little less).
    reward_range: largest reward minus smallest.
    shape: one of the five.
    adapt_negative: also gives failures room below 1, the more the rarer
      failure was: eps = 1 - exp(-|a| / lambda), never under eps_low. The paper
      does not.

  Source: Jia et al., arXiv 2609.00444 (GAPO), equation 11 for 'linear',
  second-hand (six readings agree). 'exact', 'exp' and 'normalized' are derived
  here from its equations 8 to 10; 'harmonic' is a guess at a mode of its code
  whose formula is not known. Through a / a_max for other rewards, and
  adapt_negative: derived here, not published.
  """
  eps_low: float = 3e-3
  eps_high: float = 5e-3
  reward_range: float = 1.0
  shape: str = 'linear'
  adapt_negative: bool = False
  needs_rewards: ClassVar[bool] = True

  def __post_init__(self):
    check_width('eps_low', self.eps_low)
    check_width('eps_high', self.eps_high)
    if not self.eps_low < self.eps_high < math.inf:
      raise ValueError(
          f'GroupAdaptive needs eps_low < eps_high < inf, got {self.eps_low} '
          f'and {self.eps_high}. Use Fixed bounds where they are equal.')
    if not 0 < self.reward_range < math.inf:
      raise ValueError(
          f'GroupAdaptive needs a finite reward_range > 0, got '
          f'{self.reward_range}. It is the largest reward minus the smallest.')
    if self.shape not in _SHAPES:
      raise ValueError(
          f'GroupAdaptive.shape must be one of {", ".join(_SHAPES)}, got '
          f'{self.shape!r}.')

  def __call__(self, inputs: BoundsInputs) -> Region:
    size = jnp.asarray(inputs.group_size, inputs.rewards.dtype)
    largest = self.reward_range * (size - 1) / size
    # A group of one is its own mean: 0 / 1, not 0 / 0. No score, no share.
    share = jnp.nan_to_num(inputs.rewards - inputs.group_mean) / jnp.where(
        largest > 0, largest, 1.0)
    eps = _SHAPES[self.shape](
        jnp.clip(share, 0, 1), size, self.eps_low, self.eps_high)
    low, _ = span(self.eps_low, 0.0, inputs)
    if self.adapt_negative:
      shrunk = _exp(jnp.clip(share, -1, 0), size, self.eps_low, self.eps_high)
      low = log_lower(jnp.maximum(self.eps_low, -shrunk) * inputs.width)
    return Region(
        low, jnp.log1p(jnp.maximum(eps, self.eps_low) * inputs.width))

  def interval(self) -> tuple[float, float]:
    """The widest there is."""
    low = self.eps_low
    if self.adapt_negative:
      low = max(low, self.eps_high / (1 + self.eps_high))
    return max(1 - low, 0.0), 1 + self.eps_high


def _linear(share, size, low, high):
  del size
  return low + (high - low) * share


def _exact(share, size, low, high):
  return low + (high - low) * _exp(share, size, low, high) / high


def _exp(share, size, low, high):
  del size, low
  return jnp.expm1(share * math.log1p(high))


def _normalized(share, size, low, high):
  del low
  exponent, won = share * math.log1p(high), _successes(share, size)
  # A failure of the same group lies c / (k - 1) below its mean, in a_max.
  other = -won / jnp.maximum(size - 1, 1) * math.log1p(high)
  part = won / size
  mean = part * jnp.expm1(exponent) + (1 - part) * jnp.expm1(other)
  return jnp.expm1(exponent - jnp.log1p(mean))


def _harmonic(share, size, low, high):
  # (1/c - 1/k) / (1 - 1/k) = s / c.
  return low + (high - low) * share / _successes(share, size)


def _successes(share: Array, size: Array) -> Array:
  """c of a binary group in which a success has this share."""
  return size - (size - 1) * share


_SHAPES = {'linear': _linear, 'exact': _exact, 'exp': _exp,
           'normalized': _normalized, 'harmonic': _harmonic}
