"""Intervals of given numbers: one for all tokens, or one for each sign of A."""
import dataclasses
import math

import jax.numpy as jnp

from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs,
                                               check_width, Region, REGISTRY,
                                               span)


@REGISTRY.register('fixed')
@dataclasses.dataclass(frozen=True)
class Fixed(Bounds):
  """The same interval for every token.

  1 - eps_low <= w <= 1 + eps_high.

  Attributes:
    eps_low: width below 1; from 1 on there is no lower bound.
    eps_high: width above 1; inf for no upper bound.

  Source: Schulman et al., arXiv 1707.06347; apart from each other: Yu et al.,
  arXiv 2503.14476 (DAPO's clip-higher).
  """
  eps_low: float = 0.2
  eps_high: float = 0.2

  def __post_init__(self):
    check_width('eps_low', self.eps_low)
    check_width('eps_high', self.eps_high)
    if self.eps_low >= 1 and math.isinf(self.eps_high):
      raise ValueError(
          f'Fixed bounds need one bound at least, got eps_low = '
          f"{self.eps_low} and eps_high = inf. Use the gate 'none'.")

  def __call__(self, inputs: BoundsInputs) -> Region:
    return span(self.eps_low, self.eps_high, inputs)

  def interval(self) -> tuple[float, float]:
    return max(1 - self.eps_low, 0.0), 1 + self.eps_high


@REGISTRY.register('fixed_by_sign')
@dataclasses.dataclass(frozen=True)
class FixedBySign(Bounds):
  """Four bounds: one interval where A > 0, another elsewhere.

  1 - eps_low <= w <= 1 + eps_high where A > 0;
  1 - eps_low_negative <= w <= 1 + eps_high_negative where A <= 0.
  Only a gate that blocks whatever the sign of A reads all four.

  Attributes:
    eps_low: eps2 of the paper.
    eps_high: eps1 of the paper.
    eps_low_negative: eps4 of the paper.
    eps_high_negative: eps3 of the paper.

  Source: Liu and Chen, arXiv 2601.03895 (ABC-GRPO), equation 5.
  """
  eps_low: float = 0.2
  eps_high: float = 0.2
  eps_low_negative: float = 0.2
  eps_high_negative: float = 0.2

  def __post_init__(self):
    for field in dataclasses.fields(self):
      check_width(field.name, getattr(self, field.name))

  def __call__(self, inputs: BoundsInputs) -> Region:
    above = span(self.eps_low, self.eps_high, inputs)
    below = span(self.eps_low_negative, self.eps_high_negative, inputs)
    positive = inputs.advantages > 0
    return Region(jnp.where(positive, above.log_low, below.log_low),
                  jnp.where(positive, above.log_high, below.log_high))

  def interval(self) -> tuple[float, float]:
    """That of A > 0."""
    return max(1 - self.eps_low, 0.0), 1 + self.eps_high
