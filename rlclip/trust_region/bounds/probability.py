"""Bounds that follow the token's own probability under the ratio's anchor.

q = exp(anchor log-prob), p = w q. What a ratio costs depends on q: a token of
q = 0.9 that doubles is impossible, one of q = 1e-4 that doubles is nothing.
The binary measures set the sampled token against all others in one bin; by
data processing they are lower bounds of the measure over the vocabulary.
"""
import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp

from rlclip import divergences
from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs,
                                               check_budget, check_width,
                                               closed_where, log_lower, Region,
                                               REGISTRY)

Array = Any

_DIRECTIONS = ('forward', 'reverse')
# 1 / q beyond this is no tighter a bound on any ratio, and would overflow.
_LONGEST_ODDS = 80.0
# What is left beside a token whose q rounds to 1.
_SMALLEST_REST = 1e-12


@REGISTRY.register('probability_adaptive')
@dataclasses.dataclass(frozen=True)
class ProbabilityAdaptive(Bounds):
  """DCPO's interval: the rarer the token, the more room.

  low = 1/2 + sqrt(max(1 - 4 eps_low / q, 0)) / 2,
  high = 1/2 + sqrt(1 + 4 eps_high / q) / 2, at most max_ratio.
  Where w >= 1/2 and below max_ratio that is w |w - 1| q <= eps; w never gets
  under 1/2.

  Attributes:
    eps_low: budget below 1, in probability.
    eps_high: budget above 1.
    max_ratio: largest upper bound.

  Source: arXiv 2509.02333 (DCPO) and its code, as a table of rules has it.
  """
  eps_low: float = 0.16
  eps_high: float = 0.2
  max_ratio: float = 10.0
  only_tokens: ClassVar[bool] = True

  def __post_init__(self):
    check_width('eps_low', self.eps_low)
    check_width('eps_high', self.eps_high)
    if not 1 < self.max_ratio < math.inf:
      raise ValueError(
          f'ProbabilityAdaptive needs a finite max_ratio > 1, got '
          f'{self.max_ratio}. DCPO has 10.')

  def __call__(self, inputs: BoundsInputs) -> Region:
    odds = inputs.width * _inverse(inputs.anchor_logps)
    low = jnp.minimum(self.eps_low * odds, 0.25)
    high = jnp.minimum(
        self.eps_high * odds, self.max_ratio * (self.max_ratio - 1))
    # sqrt(1 + x) - 1 = x / (1 + sqrt(1 + x)) does not cancel where x is small.
    return Region(jnp.log1p(-2 * low / (1 + jnp.sqrt(1 - 4 * low))),
                  jnp.log1p(2 * high / (1 + jnp.sqrt(1 + 4 * high))))

  def interval(self, probability: float = 0.5) -> tuple[float, float]:
    """At this q."""
    low = math.sqrt(max(1 - 4 * self.eps_low / probability, 0.0))
    high = math.sqrt(1 + 4 * self.eps_high / probability)
    return 0.5 + 0.5 * low, min(0.5 + 0.5 * high, self.max_ratio)


@REGISTRY.register('binary_tv')
@dataclasses.dataclass(frozen=True)
class BinaryTotalVariation(Bounds):
  """The ratios that move the token's probability by no more than delta.

  |p - q| = q |w - 1| <= delta  <=>  1 - delta / q <= w <= 1 + delta / q.
  Scales with the width, not with its square. No ratio exceeds 1 / q, so a
  token with q > 1 - delta has no upper bound in effect.

  Attributes:
    delta: the budget, in probability.

  Source: arXiv 2602.04879 (DPPO, Binary-TV), second-hand. There the anchor is
  the policy that sampled.
  """
  delta: float = 0.15
  only_tokens: ClassVar[bool] = True

  def __post_init__(self):
    check_budget('BinaryTotalVariation', self.delta)

  def __call__(self, inputs: BoundsInputs) -> Region:
    eps = self.delta * inputs.width * _inverse(inputs.anchor_logps)
    return Region(log_lower(eps), jnp.log1p(eps))

  def interval(self, probability: float = 0.5) -> tuple[float, float]:
    """At this q."""
    eps = self.delta / probability
    return max(1 - eps, 0.0), 1 + eps


@REGISTRY.register('binary_kl')
@dataclasses.dataclass(frozen=True)
class BinaryKL(Bounds):
  """Whether the token and the rest of its distribution are within a KL.

  q f(p / q) + (1 - q) f((1 - p) / (1 - q)) <= delta, f the KL's generator:
  forward  KL(old || new) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)),
  reverse  KL(new || old) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)).
  Written with f both terms are positive, so nothing cancels near w = 1. The
  ends have no closed form, and the verdict does not need them.

  Attributes:
    delta: the budget, in nats.
    direction: 'forward' or 'reverse'.

  Source: arXiv 2602.04879 (DPPO, Binary-KL), second-hand, with the forward
  direction and the policy that sampled as anchor; both directions within 0.1:
  KPop (prime-rl), second-hand.
  """
  delta: float = 0.05
  direction: str = 'forward'
  has_ends: ClassVar[bool] = False
  has_ends_at_any_width: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True

  def __post_init__(self):
    check_budget('BinaryKL', self.delta)
    if self.direction not in _DIRECTIONS:
      raise ValueError(
          f'BinaryKL.direction must be one of {", ".join(_DIRECTIONS)}, got '
          f'{self.direction!r}.')

  def __call__(self, inputs: BoundsInputs) -> Region:
    value = self._value(inputs.log_ratio, inputs.anchor_logps)
    return closed_where(value > self.delta * inputs.width ** 2)

  def interval(self, probability: float = 0.5) -> tuple[float, float]:
    """At this q."""
    log_q = math.log(probability)
    low, high = divergences.Divergence(
        generator=lambda d: self._value(d, log_q)).interval(self.delta)
    return low, min(high, 1 / probability)

  def _value(self, log_ratio: Array, anchor_logps: Array) -> Array:
    f = divergences.get(f'{self.direction}_kl').generator
    probability = jnp.exp(anchor_logps)
    rest = jnp.maximum(-jnp.expm1(anchor_logps), _SMALLEST_REST)
    lost = probability * jnp.expm1(log_ratio) / rest
    # Near p = 1 rounding may take more from the rest than there is.
    lost = jnp.minimum(lost, 1 - jnp.finfo(lost.dtype).epsneg)
    return probability * f(log_ratio) + rest * f(jnp.log1p(-lost))


def _inverse(logps: Array) -> Array:
  """1 / q."""
  return jnp.exp(jnp.minimum(-logps, _LONGEST_ODDS))
