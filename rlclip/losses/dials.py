"""Numbers that move in the course of a run: a region's width, a beta.

A dial is a factor, 1 for what the rule says as it stands. It multiplies every
eps of the bounds (and a delta by its square, so that the width scales alike),
or beta. Its value is part of the train state, so that a resumed run goes on
where it was; after each optimizer update it moves once.
"""
import dataclasses
import inspect
import math
from typing import Any, ClassVar, Mapping

import jax.numpy as jnp

from rlclip import registry as registry_lib

Array = Any

REGISTRY = registry_lib.Registry('dial')

# What each role is measured by, and whether the factor rises with it.
_KL_SIGNALS = {'width': ('trust_region/forward_kl', -1.0),
               'beta': ('penalty', 1.0)}


@REGISTRY.register('ramp')
@dataclasses.dataclass(frozen=True)
class Ramp:
  """Goes linearly from one factor to another, then stays.

  factor = start + (end - start) min(updates / num_updates, 1).

  Attributes:
    start: factor at the first update.
    end: factor from `num_updates` on.
    num_updates: optimizer updates it takes.

  Source: ours; the papers keep their widths fixed.
  """
  start: float = 1.0
  end: float = 0.5
  num_updates: float = 100
  roles: ClassVar[tuple[str, ...]] = ('width', 'beta')

  def __post_init__(self):
    for name in ('start', 'end'):
      _check_positive(self, name)
    _check_positive(self, 'num_updates')

  @property
  def initial(self) -> float:
    return self.start

  def moved(self, role: str, factor: Array, updates: Array,
            measured: Mapping[str, Array]) -> Array:
    """The factor after `updates` optimizer updates, float32[]."""
    del role, factor, measured
    share = jnp.minimum(updates / self.num_updates, 1.0)
    return jnp.float32(self.start + (self.end - self.start) * share)


@REGISTRY.register('target_clip_share')
@dataclasses.dataclass(frozen=True)
class TargetClipShare:
  """Widens the region while more than a share of tokens is blocked.

  factor *= 1 + rate clip(share / target - 1, -0.2, 0.2), within its limits.

  Attributes:
    target: share of tokens whose gradient the rule removes or changes.
    rate: how much of the relative error is corrected at each update.
    lowest: smallest factor.
    highest: largest factor.

  Source: ours; the controller is the adaptive KL's of Ziegler et al.,
  arXiv 1909.08593.
  """
  target: float = 0.01
  rate: float = 0.1
  lowest: float = 0.1
  highest: float = 10.0
  roles: ClassVar[tuple[str, ...]] = ('width',)

  def __post_init__(self):
    _check_controller(self)

  @property
  def initial(self) -> float:
    return 1.0

  def moved(self, role: str, factor: Array, updates: Array,
            measured: Mapping[str, Array]) -> Array:
    """The factor after one more update, float32[]."""
    del role, updates
    return _controlled(self, factor, measured['clip_ratio/region_mean'], 1.0)


@REGISTRY.register('target_kl')
@dataclasses.dataclass(frozen=True)
class TargetKL:
  """Holds a divergence near a target: by beta, or by the region's width.

  factor *= 1 +- rate clip(kl / target - 1, -0.2, 0.2), within its limits.
  As beta's dial it rises with the penalty's own divergence; as the width's it
  falls with KL(anchor || policy), estimated by w - 1 - log w.

  Attributes:
    target: nats a token (or the unit of the penalty's divergence).
    rate: how much of the relative error is corrected at each update.
    lowest: smallest factor.
    highest: largest factor.

  Source: Ziegler et al., arXiv 1909.08593 (adaptive KL, for beta); for the
  width: ours.
  """
  target: float = 0.01
  rate: float = 0.1
  lowest: float = 0.01
  highest: float = 100.0
  roles: ClassVar[tuple[str, ...]] = ('width', 'beta')

  def __post_init__(self):
    _check_controller(self)

  @property
  def initial(self) -> float:
    return 1.0

  def moved(self, role: str, factor: Array, updates: Array,
            measured: Mapping[str, Array]) -> Array:
    """The factor after one more update, float32[]."""
    del updates
    metric, sign = _KL_SIGNALS[role]
    return _controlled(self, factor, measured[metric], sign)


def get(text: str):
  """A dial from a string, as 'ramp(end=0.5, num_updates=200)'.

  Raises:
    ValueError: for an unknown name, or one that does not take these numbers.
  """
  name, numbers = registry_lib.parse(text)
  kind = REGISTRY[name]
  allowed = tuple(inspect.signature(kind).parameters)
  unknown = sorted(set(numbers) - set(allowed))
  if unknown:
    raise ValueError(
        f'Dial {name!r} does not take {", ".join(unknown)}; it takes '
        f'{", ".join(allowed)}.')
  return kind(**numbers)


def initial(dials: Mapping[str, Any]) -> dict[str, Array]:
  """Each role's factor before the first update."""
  return {role: jnp.float32(dial.initial) for role, dial in dials.items()}


def moved(dials: Mapping[str, Any], factors: Mapping[str, Array],
          updates: Array, metrics: Mapping[str, Any]) -> dict[str, Array]:
  """Each role's factor after an update.

  Args:
    dials: by role.
    factors: by role, before the update.
    updates: int[], optimizer updates done.
    metrics: Means of the update.
  """
  measured = {name: mean.value() for name, mean in metrics.items()}
  return {role: dial.moved(role, factors[role], updates, measured)
          for role, dial in dials.items()}


def _controlled(dial, factor, measured, sign):
  error = jnp.clip(measured / dial.target - 1, -0.2, 0.2)
  return jnp.clip(
      factor * (1 + sign * dial.rate * error), dial.lowest, dial.highest)


def _check_controller(dial):
  for name in ('target', 'rate', 'lowest', 'highest'):
    _check_positive(dial, name)
  if not dial.lowest <= 1 <= dial.highest:
    raise ValueError(
        f'{type(dial).__name__} starts at 1 and needs lowest <= 1 <= highest, '
        f'got {dial.lowest} and {dial.highest}.')


def _check_positive(dial, name):
  if not 0 < getattr(dial, name) < math.inf:
    raise ValueError(
        f'{type(dial).__name__}.{name} must be finite and more than 0, got '
        f'{getattr(dial, name)}.')
