"""How the trust region [low, high] for the ratio w is drawn.

Bounds travel as logarithms: near w = 1, where GSPO's widths are 3e-4, log w
has digits that w does not.
"""
import dataclasses
import functools
import math
from typing import Any, ClassVar, Mapping, NamedTuple

import jax.numpy as jnp

from rlclip import divergences, registry, types

Array = Any

REGISTRY = registry.Registry('bounds')


class Region(NamedTuple):
  """Log-bounds of the ratio; each a float or broadcastable to [N, C]."""
  log_low: Array
  log_high: Array

  def below(self, log_ratio: Array) -> Array:
    """Whether the token left the region downward."""
    return (log_ratio < self.log_low) & (log_ratio < 0)

  def above(self, log_ratio: Array) -> Array:
    """Whether the token left the region upward."""
    return (log_ratio > self.log_high) & (log_ratio > 0)


class BoundsInputs(NamedTuple):
  """What a region may depend on; never on the current policy's gradient."""
  advantages: Array  # [N, 1]
  log_ratio: Array  # [N, C]
  anchor_logps: Array  # [N, C]
  mask: Array  # bool[N, C]
  rewards: Array | None = None  # [N, 1]
  group_mean: Array | None = None  # [N, 1], mean reward of the row's group
  group_size: Array | None = None  # int, or int[N, 1]
  width: Array | float = 1.0  # multiplies an eps, and its square a delta
  statistics: Mapping[types.Statistic, Array] = {}  # [N, C], those in `needs`


class Bounds:
  """What a way to draw the region says of itself; the classes override it."""
  needs_rewards: ClassVar[bool] = False
  # Numbers that a gate may clip to, or a test that only says in or out (then
  # the region is closed, [0, 0] in logs, or open, [-inf, inf]).
  has_ends: ClassVar[bool] = True
  # Whether a token's region depends on other rows: then a batch may not be cut.
  whole_batch: ClassVar[bool] = False

  @property
  def needs(self) -> tuple[types.Statistic, ...]:
    """Statistics of whole distributions that the region is drawn from."""
    return ()


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
    _check_width('eps_low', self.eps_low)
    _check_width('eps_high', self.eps_high)
    if self.eps_low >= 1 and math.isinf(self.eps_high):
      raise ValueError(
          f'Fixed bounds need one bound at least, got eps_low = '
          f"{self.eps_low} and eps_high = inf. Use the gate 'none'.")

  def __call__(self, inputs: BoundsInputs) -> Region:
    del inputs
    return Region(_log_lower(self.eps_low), math.log1p(self.eps_high))

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
      _check_width(field.name, getattr(self, field.name))

  def __call__(self, inputs: BoundsInputs) -> Region:
    positive = inputs.advantages > 0
    return Region(
        jnp.where(positive, _log_lower(self.eps_low),
                  _log_lower(self.eps_low_negative)),
        jnp.where(positive, math.log1p(self.eps_high),
                  math.log1p(self.eps_high_negative)))

  def interval(self) -> tuple[float, float]:
    return max(1 - self.eps_low, 0.0), 1 + self.eps_high


@REGISTRY.register('from_divergence')
@dataclasses.dataclass(frozen=True)
class FromDivergence(Bounds):
  """The ratios whose divergence from 1 is within a budget.

  low <= w <= high  <=>  f(w) <= delta.
  With the same delta, divergences have the same width to second order and
  differ in skew. Comparing them at unmatched widths compares widths.

  Attributes:
    divergence: any of rlclip.divergences, as 'forward_kl' or
      'alpha(order=0.5)'.
    delta: the budget, > 0; eps^2 / 2 for a width of eps.

  Source: Wu et al., arXiv 2602.05494 (KL3; second-hand, its delta unknown);
  the other divergences are derived here.
  """
  divergence: str = 'forward_kl'
  delta: float = 0.02

  def __post_init__(self):
    if not 0 < self.delta < math.inf:
      raise ValueError(
          f'FromDivergence needs a finite delta > 0, got {self.delta}. Use '
          f"the gate 'none' for no trust region.")
    self.interval()  # an unknown divergence stops here

  def __call__(self, inputs: BoundsInputs) -> Region:
    del inputs
    low, high = self.interval()
    return Region(math.log(low) if low > 0 else -math.inf, math.log(high))

  def interval(self) -> tuple[float, float]:
    return _interval(self.divergence, float(self.delta))


@REGISTRY.register('group_adaptive')
@dataclasses.dataclass(frozen=True)
class GroupAdaptive(Bounds):
  """The rarer the success in its group, the more room above 1 it gets.

  1 - eps_low <= w <= 1 + eps,
  eps = eps_low + (eps_high - eps_low) clip(a / a_max, 0, 1),
  a = r - group mean, a_max = reward_range (k - 1) / k, k samples a group.
  With rewards 0 and 1 and c successes that is
  eps_low + (eps_high - eps_low) (k - c) / (k - 1) for a success and eps_low
  for a failure. The rewards decide, not the advantages, which may have been
  normalized.

  Attributes:
    eps_low: width below 1, and above 1 for what is no better than its group.
    eps_high: width above 1 of the only success of its group.
    reward_range: largest reward minus smallest.

  Source: Jia et al., arXiv 2609.00444 (GAPO), equation 11, second-hand (six
  readings agree); through a / a_max for other rewards: derived here.
  """
  eps_low: float = 3e-3
  eps_high: float = 5e-3
  reward_range: float = 1.0
  needs_rewards: ClassVar[bool] = True

  def __post_init__(self):
    _check_width('eps_low', self.eps_low)
    _check_width('eps_high', self.eps_high)
    if not self.eps_low < self.eps_high < math.inf:
      raise ValueError(
          f'GroupAdaptive needs eps_low < eps_high < inf, got {self.eps_low} '
          f'and {self.eps_high}. Use Fixed bounds where they are equal.')
    if not 0 < self.reward_range < math.inf:
      raise ValueError(
          f'GroupAdaptive needs a finite reward_range > 0, got '
          f'{self.reward_range}. It is the largest reward minus the smallest.')

  def __call__(self, inputs: BoundsInputs) -> Region:
    size = jnp.asarray(inputs.group_size, inputs.rewards.dtype)
    largest = self.reward_range * (size - 1) / size
    # A group of one is its own mean: 0 / 1, not 0 / 0.
    share = (inputs.rewards - inputs.group_mean) / jnp.where(
        largest > 0, largest, 1.0)
    eps = self.eps_low + (self.eps_high - self.eps_low) * jnp.clip(share, 0, 1)
    return Region(_log_lower(self.eps_low), jnp.log1p(eps))

  def interval(self) -> tuple[float, float]:
    """The widest there is."""
    return max(1 - self.eps_low, 0.0), 1 + self.eps_high


@functools.lru_cache(maxsize=None)
def _interval(divergence: str, delta: float) -> tuple[float, float]:
  return divergences.get(divergence).interval(delta)


def _log_lower(eps: float) -> float:
  """log(1 - eps), with a lower bound of 0 from eps = 1 on."""
  return math.log1p(-eps) if eps < 1 else -math.inf


def _check_width(name: str, eps: float):
  if not eps >= 0:
    raise ValueError(
        f'{name} must be 0 or more (the distance of the bound from 1), got '
        f'{eps}.')
