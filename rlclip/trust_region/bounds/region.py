"""What a trust region is, what it may depend on, and who draws them.

Bounds travel as logarithms: near w = 1, where GSPO's widths are 3e-4, log w
has digits that w does not.
"""
import math
from typing import Any, ClassVar, Mapping, NamedTuple

import jax.numpy as jnp

from rlclip import registry, types

Array = Any

REGISTRY = registry.Registry('bounds', package='rlclip.trust_region.bounds')


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
  rewards: Array | None = None  # [N, 1]; nan where a row has no score
  group_mean: Array | None = None  # [N, 1], mean reward of the row's group
  group_size: Array | None = None  # int, or int[N, 1]: the rows with a score
  width: Array | float = 1.0  # multiplies an eps, and its square a delta
  statistics: Mapping[types.Statistic, Array] = {}  # [N, C], those in `needs`


class Bounds:
  """What a way to draw the region says of itself; the classes override it.

  Calling one maps BoundsInputs to a Region. With a width that is the float 1.0
  its numbers are constants, computed on the host in float64; any other width
  may be traced, so that it can follow a schedule without a new compilation.
  """
  needs_rewards: ClassVar[bool] = False
  # Numbers that a gate may clip to, or a test that only says in or out (then
  # the region is closed, [0, 0] in logs, or open, [-inf, inf]).
  has_ends: ClassVar[bool] = True
  # Whether that holds for a width other than the float 1.0, too.
  has_ends_at_any_width: ClassVar[bool] = True
  # Whether a token's region depends on other rows: then a batch may not be cut.
  whole_batch: ClassVar[bool] = False
  # Whether it looks at single tokens, whatever the level: then it is 'token'.
  only_tokens: ClassVar[bool] = False

  @property
  def needs(self) -> tuple[types.Statistic, ...]:
    """Statistics of whole distributions that the region is drawn from."""
    return ()

  def __call__(self, inputs: BoundsInputs) -> Region:
    raise NotImplementedError

  def interval(self) -> tuple[float, float]:
    """(low, high) at width 1, float64: the widest there is, if not said."""
    raise NotImplementedError


def has_unit_width(inputs: BoundsInputs | None) -> bool:
  """Whether the width is known to be 1, so that constants will do."""
  return inputs is None or (
      isinstance(inputs.width, float) and inputs.width == 1.0)


def closed_where(outside: Array) -> Region:
  """The region of a test: [0, 0] in logs where outside, else all ratios."""
  return Region(jnp.where(outside, 0.0, -jnp.inf),
                jnp.where(outside, 0.0, jnp.inf))


def span(eps_low: float, eps_high: float,
         inputs: BoundsInputs | None) -> Region:
  """The region [1 - eps_low, 1 + eps_high], both times the width.

  An eps_low of 1 or more is no lower bound, at any width.
  """
  if has_unit_width(inputs):
    return Region(math.log1p(-eps_low) if eps_low < 1 else -math.inf,
                  math.log1p(eps_high))
  return Region(
      log_lower(eps_low * inputs.width) if eps_low < 1 else -math.inf,
      jnp.log1p(eps_high * inputs.width))


def log_lower(eps: Array) -> Array:
  """log(1 - eps), with a lower bound of 0 from eps = 1 on."""
  return jnp.log1p(-jnp.minimum(eps, 1.0))


def check_width(name: str, eps: float):
  """Raises ValueError unless eps is a distance from 1."""
  if not eps >= 0:
    raise ValueError(
        f'{name} must be 0 or more (the distance of the bound from 1), got '
        f'{eps}.')


def check_budget(kind: str, delta: float):
  """Raises ValueError unless delta is a budget that leaves and takes room."""
  if not 0 < delta < math.inf:
    raise ValueError(
        f'{kind} needs a finite delta > 0, got {delta}. Use the gate '
        f"'none' for no trust region.")
