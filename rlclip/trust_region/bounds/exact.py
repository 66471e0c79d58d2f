"""The divergence of whole distributions decides; the token gives direction.

D does not depend on which token was sampled, so the sign of A (w - 1) has to
say whether this token leads out of the region or back into it. Both are tests:
the region is closed, [1, 1], or open.
"""
import dataclasses
import math
from typing import ClassVar

from rlclip import divergences, types
from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs,
                                               check_budget, closed_where,
                                               Region, REGISTRY)


@REGISTRY.register('exact_divergence')
@dataclasses.dataclass(frozen=True)
class ExactDivergence(Bounds):
  """Whether the policy's distribution at the position is within a budget.

  D(policy || anchor) over the vocabulary <= delta.
  'forward_kl' is TRPO's KL(old || new), bound at every position.

  Attributes:
    divergence: any of rlclip.divergences.
    delta: the budget, in units of the divergence.

  Source: Wang et al., "Truly Proximal Policy Optimization", UAI 2019 (TR-PPO,
  equations 13 to 15); as an instance of ATR's constraint: arXiv 2602.05494,
  second-hand. The delta is ours.
  """
  divergence: str = 'forward_kl'
  delta: float = 0.02
  has_ends: ClassVar[bool] = False
  has_ends_at_any_width: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True

  def __post_init__(self):
    check_budget(type(self).__name__, self.delta)
    divergences.get(self.divergence)  # an unknown divergence stops here

  @property
  def needs(self) -> tuple[types.Statistic, ...]:
    return (types.Statistic(self.divergence, 'anchor'),)

  def __call__(self, inputs: BoundsInputs) -> Region:
    (statistic,) = self.needs
    if statistic not in inputs.statistics:
      raise ValueError(
          f'{self} needs {statistic} of every token, got '
          f'{", ".join(map(str, inputs.statistics)) or "no statistics"}. Bare '
          f'log-probs of the sampled tokens do not have it.')
    power = divergences.get(self.divergence).power
    return closed_where(
        inputs.statistics[statistic] > self.delta * inputs.width ** power)

  def interval(self) -> tuple[float, float]:
    """Every ratio is inside where the distribution is."""
    return 0.0, math.inf


@REGISTRY.register('top_k_divergence')
@dataclasses.dataclass(frozen=True)
class TopKDivergence(ExactDivergence):
  """The same over the anchor's K likeliest tokens and one bin for the rest.

  A lower bound of the divergence over the vocabulary, by data processing, that
  needs K log-probs of the anchor and not V.

  Attributes:
    divergence: any of rlclip.divergences.
    delta: the budget, in units of the divergence.
    top_k: K, 1 or more.

  Source: arXiv 2602.04879 (DPPO's top-K variant), second-hand; K = 20 is that
  of TRL's example, the delta that of DPPO's binary KL.
  """
  delta: float = 0.05
  top_k: int = 20

  def __post_init__(self):
    super().__post_init__()
    if not (isinstance(self.top_k, int) and self.top_k >= 1):
      raise ValueError(
          f'TopKDivergence needs a whole top_k of 1 or more, got '
          f'{self.top_k!r}. Use ExactDivergence for the whole vocabulary.')

  @property
  def needs(self) -> tuple[types.Statistic, ...]:
    return (types.Statistic(self.divergence, 'anchor', self.top_k),)
