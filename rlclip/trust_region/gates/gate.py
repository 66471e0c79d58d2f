"""What every gate takes and gives, what it says of itself, and their registry.
"""
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rlclip import registry
from rlclip.trust_region.bounds import Region

Array = Any

REGISTRY = registry.Registry('gate')

FORMS = ('surrogate', 'score')


class GateInputs(NamedTuple):
  """Per token, [N, C] or broadcastable; masked entries are 0.

  float32 or float64; narrower types never get here.
  """
  log_ratio: Array  # d, differentiable
  logps: Array  # log p, differentiable
  advantages: Array  # A
  inside: Array | float  # penalty in the advantage, already times -beta
  region: Region | None
  mask: Array
  anchor_logps: Array | float = 0.0  # log-probs under the ratio's anchor


class GateOutput(NamedTuple):
  loss: Array  # [N, C], to be minimized
  blocked_low: Array  # bool[N, C], gradient removed or changed at w < 1
  blocked_high: Array  # bool[N, C], and at w > 1


class Gate:
  """What a gate says of itself; the classes override it."""
  uses_bounds: ClassVar[bool] = True
  # Whether it clips to the region's ends, which a mere test does not have.
  needs_ends: ClassVar[bool] = False
  takes_inside: ClassVar[bool] = False
  # Whether it looks at single tokens, whatever the level: then it is 'token'.
  only_tokens: ClassVar[bool] = False
  # Whether a token's gradient depends on other rows.
  whole_batch: ClassVar[bool] = False
  # Whether it may remove a gradient at w = 1, which no trust region does.
  blocks_at_one: ClassVar[bool] = False

  @property
  def scale(self) -> float:
    """A factor that every gradient has, at w = 1 too, as published."""
    return 1.0


def hold(values: Array) -> Array:
  return jax.lax.stop_gradient(values)


def leaving(x: GateInputs, signed: Array) -> tuple[Array, Array]:
  """PPO's test: who left the region downward, upward, and gains by it."""
  return (x.region.below(x.log_ratio) & (signed < 0),
          x.region.above(x.log_ratio) & (signed > 0))


def sides(x: GateInputs, changed: Array) -> tuple[Array, Array]:
  """Splits changed tokens into those at w < 1 and those at w > 1."""
  return (x.log_ratio < 0) & changed, (x.log_ratio > 0) & changed


def end(x: GateInputs, low: Array) -> Array:
  """The logarithm of the end that a token is at: the low one where `low`."""
  return jnp.where(low, x.region.log_low, x.region.log_high)


def clipped(x: GateInputs, blocked: Array, log_bound: Array,
            form: str = 'surrogate') -> Array:
  """Minus the ratio, or the bound where blocked, times the advantage."""
  ratio, bound = jnp.exp(x.log_ratio), jnp.exp(log_bound)
  if form == 'surrogate':
    # Select before multiplying: an absent bound is inf.
    return -jnp.where(blocked, bound, ratio) * (x.advantages + x.inside)
  kept = -hold((x.advantages + x.inside) * ratio) * x.logps
  # Algorithm 2 clips the weight of the advantage and not that of the penalty.
  weight = jnp.where(blocked, bound, 1.0) * x.advantages + ratio * x.inside
  return jnp.where(blocked, -hold(weight * x.logps), kept)


def weighted(x: GateInputs, weight: Array) -> Array:
  """-SG(weight) A log p, a policy gradient with a weight held fixed."""
  return -hold(weight) * x.advantages * x.logps


def with_slope(x: GateInputs, objective: Array, weight: Array) -> Array:
  """Minus the objective, with the gradient -weight A by log p.

  For objectives whose slope is known in a form that loses fewer digits than
  automatic differentiation does.
  """
  step = x.log_ratio - hold(x.log_ratio)  # 0, with the gradient of log p
  return -hold(objective) - hold(weight * x.advantages) * step


def row_mean(values: Array, mask: Array) -> Array:
  """[N, 1], means over the tokens of a row; 0 for a row without any."""
  count = jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1)
  return jnp.sum(jnp.where(mask, values, 0.0), -1, keepdims=True) / count


def check_form(form: str):
  if form not in FORMS:
    raise ValueError(f'form must be one of {", ".join(FORMS)}, got {form!r}.')


def check_positive(gate: str, **numbers: float):
  """Every number must be above 0 and finite."""
  for name, value in numbers.items():
    if not 0 < value < float('inf'):
      raise ValueError(f'{gate} needs a finite {name} > 0, got {value}.')


def check_cap(gate: str, name: str, value: float):
  if not value > 1:
    raise ValueError(
        f'{gate} needs {name} > 1, since nothing is capped at w = 1, got '
        f'{value}. inf is no cap.')
