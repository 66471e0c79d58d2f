"""The ratios within a divergence's budget: the same interval for every token.
"""
import dataclasses
import functools
import math
from typing import ClassVar

from rlclip import divergences
from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs,
                                               check_budget, closed_where,
                                               has_unit_width, Region, REGISTRY)


@REGISTRY.register('from_divergence')
@dataclasses.dataclass(frozen=True)
class FromDivergence(Bounds):
  """The ratios whose divergence from 1 is within a budget.

  low <= w <= high  <=>  f(w) <= delta.
  With the same delta, divergences have the same width to second order and
  differ in skew. Comparing them at unmatched widths compares widths.
  At a width other than 1 the budget is delta width^2 (delta width for total
  variation and the absolute log-ratio), and f(w) itself is compared with it:
  then the region has no ends.

  Attributes:
    divergence: any of rlclip.divergences, as 'forward_kl' or
      'alpha(order=0.5)'.
    delta: the budget, > 0; eps^2 / 2 for a width of eps.

  Source: Wu et al., arXiv 2602.05494 (KL3; second-hand, its delta unknown);
  the other divergences are derived here.
  """
  divergence: str = 'forward_kl'
  delta: float = 0.02
  has_ends_at_any_width: ClassVar[bool] = False

  def __post_init__(self):
    check_budget('FromDivergence', self.delta)
    self.interval()  # an unknown divergence stops here

  def __call__(self, inputs: BoundsInputs) -> Region:
    if has_unit_width(inputs):
      low, high = self.interval()
      return Region(math.log(low) if low > 0 else -math.inf, math.log(high))
    measure = divergences.get(self.divergence)
    budget = measure.budget(self.delta * inputs.width ** measure.power)
    return closed_where(measure.generator(inputs.log_ratio) > budget)

  def interval(self) -> tuple[float, float]:
    return _interval(self.divergence, float(self.delta))


@functools.lru_cache(maxsize=None)
def _interval(divergence: str, delta: float) -> tuple[float, float]:
  return divergences.get(divergence).interval(delta)
