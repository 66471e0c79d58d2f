"""Several limits at once: the intersection or the union of two regions.

Both hold w = 1, so both the intersection and the union are intervals. Nesting
takes more than two: Intersection(Intersection(a, b), c).
"""
import dataclasses

import jax.numpy as jnp

from rlclip import types
from rlclip.trust_region.bounds.divergence import FromDivergence
from rlclip.trust_region.bounds.fixed import Fixed
from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs, Region,
                                               REGISTRY)


@dataclasses.dataclass(frozen=True)
class _Pair(Bounds):
  """Two bounds; needs what either needs, and has ends where both have."""
  first: Bounds = Fixed()
  second: Bounds = FromDivergence()

  def __post_init__(self):
    for name in ('first', 'second'):
      if not isinstance(getattr(self, name), Bounds):
        raise ValueError(
            f'{type(self).__name__}.{name} must be bounds, such as Fixed(), '
            f'got {getattr(self, name)!r}.')

  @property
  def needs(self) -> tuple[types.Statistic, ...]:
    return tuple(dict.fromkeys(self.first.needs + self.second.needs))

  @property
  def needs_rewards(self) -> bool:
    return self.first.needs_rewards or self.second.needs_rewards

  @property
  def whole_batch(self) -> bool:
    return self.first.whole_batch or self.second.whole_batch

  @property
  def only_tokens(self) -> bool:
    return self.first.only_tokens or self.second.only_tokens

  @property
  def has_ends(self) -> bool:
    return self.first.has_ends and self.second.has_ends

  @property
  def has_ends_at_any_width(self) -> bool:
    return (self.first.has_ends_at_any_width and
            self.second.has_ends_at_any_width)


@REGISTRY.register('intersection')
@dataclasses.dataclass(frozen=True)
class Intersection(_Pair):
  """Inside both: max(lows) <= w <= min(highs).

  Attributes:
    first: any bounds.
    second: any bounds; the order does not matter.

  Source: derived here. KPop (prime-rl, second-hand) is one: both directions of
  the binary KL.
  """

  def __call__(self, inputs: BoundsInputs) -> Region:
    one, two = self.first(inputs), self.second(inputs)
    return Region(jnp.maximum(one.log_low, two.log_low),
                  jnp.minimum(one.log_high, two.log_high))

  def interval(self) -> tuple[float, float]:
    """The intersection of what the two say."""
    (low, high), (other_low, other_high) = (
        self.first.interval(), self.second.interval())
    return max(low, other_low), min(high, other_high)


@REGISTRY.register('union')
@dataclasses.dataclass(frozen=True)
class Union(_Pair):
  """Inside either: min(lows) <= w <= max(highs).

  Attributes:
    first: any bounds.
    second: any bounds; the order does not matter.

  Source: derived here, not published.
  """

  def __call__(self, inputs: BoundsInputs) -> Region:
    one, two = self.first(inputs), self.second(inputs)
    return Region(jnp.minimum(one.log_low, two.log_low),
                  jnp.maximum(one.log_high, two.log_high))

  def interval(self) -> tuple[float, float]:
    """The union of what the two say."""
    (low, high), (other_low, other_high) = (
        self.first.interval(), self.second.interval())
    return min(low, other_low), max(high, other_high)
