"""What leaving the trust region does to a token's gradient.

Every gate minimizes a loss whose gradient has one form,

  grad loss = -m g A' grad log p,     A' = A + (penalty inside the advantage)

with a mask m and a weight g of the ratio w. "Blocked" means that the gradient
was removed or changed against w A' grad log p; nothing is blocked at w = 1.

  rule of an interval   m = not(outside and A' (w - 1) > 0)     g = w
  dual clip             and w < cap where A' < 0                g = w
  unconditional         m = inside                              g = w
  clipped weight        m = 1                                   g = clip(w)

Without the sign test, tokens on their way back into the region are frozen too.
"""
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rlclip import registry
from rlclip.trust_region.bounds import Region

Array = Any

REGISTRY = registry.Registry('gate')

_FORMS = ('surrogate', 'score')


class GateInputs(NamedTuple):
  """Per token, [N, C] or broadcastable; masked entries are 0."""
  log_ratio: Array  # d, differentiable
  logps: Array  # log p, differentiable
  advantages: Array  # A
  inside: Array | float  # penalty in the advantage, already times -beta
  region: Region | None
  mask: Array
  anchor_logps: Array | float = 0.0  # log-probs under the ratio's anchor


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


class GateOutput(NamedTuple):
  loss: Array  # [N, C], to be minimized
  blocked_low: Array  # bool[N, C], gradient removed or changed at w < 1
  blocked_high: Array  # bool[N, C], and at w > 1


@REGISTRY.register('pessimistic_min', 'ppo')
@dataclasses.dataclass(frozen=True)
class PessimisticMin(Gate):
  """PPO's gate: beyond a bound there is nothing to gain.

  J = min(w A, clip(w, low, high) A); blocked = outside and A (w - 1) > 0.
  A token that moved the wrong way keeps its gradient.

  Attributes:
    form: 'surrogate' takes the gradient through w, 'score' holds w and takes
      it through log p (REINFORCE); the gradients are equal.

  Source: Schulman et al., arXiv 1707.06347, equation 7.
  """
  form: str = 'surrogate'
  takes_inside: ClassVar[bool] = True

  def __post_init__(self):
    _check_form(self.form)

  def __call__(self, x: GateInputs) -> GateOutput:
    signed = jax.lax.stop_gradient(x.advantages + x.inside)
    low = x.region.below(x.log_ratio) & (signed < 0)
    high = x.region.above(x.log_ratio) & (signed > 0)
    bound = jnp.where(low, x.region.log_low, x.region.log_high)
    return GateOutput(_clipped(x, low | high, bound, self.form), low, high)


@REGISTRY.register('dual_clip')
@dataclasses.dataclass(frozen=True)
class DualClip(Gate):
  """PPO's gate, and a cap on how hard a bad token is pushed down.

  A >= 0: J = min(w A, clip(w) A);  A < 0: J = max(min(w A, clip(w) A), cap A).
  With a penalty inside the advantage this is RPG-Style Clip, and in the form
  'score' its Algorithm 2. INTELLECT-2's two-sided clip is the same rule.

  Attributes:
    cap: no gradient where A < 0 and w > cap.
    form: 'surrogate' or 'score', as in PessimisticMin.

  Source: Ye et al., arXiv 1912.09729; Zhang et al., arXiv 2505.17508, section
  3.3 and Algorithm 2.
  """
  cap: float = 3.0
  form: str = 'surrogate'
  takes_inside: ClassVar[bool] = True

  def __post_init__(self):
    _check_form(self.form)
    if not 1 < self.cap < math.inf:
      raise ValueError(
          f'DualClip needs a finite cap > 1, got {self.cap}. Use the gate '
          f"'pessimistic_min' for no cap.")

  def __call__(self, x: GateInputs) -> GateOutput:
    signed = jax.lax.stop_gradient(x.advantages + x.inside)
    log_cap = math.log(self.cap)
    low = x.region.below(x.log_ratio) & (signed < 0)
    high = x.region.above(x.log_ratio) & (signed > 0)
    capped = (x.log_ratio > log_cap) & (signed < 0)
    bound = jnp.where(low, x.region.log_low, x.region.log_high)
    bound = jnp.where(capped, log_cap, bound)
    blocked = low | high | capped
    return GateOutput(
        _clipped(x, blocked, bound, self.form), low, high | capped)


@REGISTRY.register('unconditional')
@dataclasses.dataclass(frozen=True)
class Unconditional(Gate):
  """Outside of the region there is no gradient, in whichever direction.

  J = clip(w, low, high) A, without the min: a token that moved the wrong way
  stays where it is.

  Source: Liu and Chen, arXiv 2601.03895 (ABC-GRPO), equation 5.
  """
  takes_inside: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    moved = x.advantages + x.inside != 0
    low = x.region.below(x.log_ratio) & moved
    high = x.region.above(x.log_ratio) & moved
    bound = jnp.where(low, x.region.log_low, x.region.log_high)
    return GateOutput(_clipped(x, low | high, bound, 'surrogate'), low, high)


@REGISTRY.register('clipped_weight')
@dataclasses.dataclass(frozen=True)
class ClippedWeight(Gate):
  """No token loses its gradient; its weight is the clipped ratio, held fixed.

  loss = -SG(clip(w, low, high)) A log p.

  Source: MiniMax, arXiv 2506.13585 (CISPO), with an upper bound only.
  """
  needs_ends: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    low = x.region.below(x.log_ratio)
    high = x.region.above(x.log_ratio)
    bound = jnp.where(low, x.region.log_low, x.region.log_high)
    weight = jnp.exp(jnp.where(low | high, bound, x.log_ratio))
    loss = -jax.lax.stop_gradient(weight) * x.advantages * x.logps
    moved = x.advantages != 0
    return GateOutput(loss, low & moved, high & moved)


@REGISTRY.register('none')
@dataclasses.dataclass(frozen=True)
class Unclipped(Gate):
  """No trust region: the importance-weighted policy gradient.

  loss = -w A.

  Source: textbook; the objective that PPO clips.
  """
  uses_bounds: ClassVar[bool] = False
  takes_inside: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    never = jnp.zeros(x.log_ratio.shape, bool)
    return GateOutput(_clipped(x, never, 0.0, 'surrogate'), never, never)


@REGISTRY.register('unweighted')
@dataclasses.dataclass(frozen=True)
class Unweighted(Gate):
  """REINFORCE as it stands: the ratio is not looked at.

  loss = -A log p. Biased as soon as the policy is not the one that sampled:
  every such token's gradient differs from that of w A, and counts as blocked.

  Source: Williams, 1992.
  """
  uses_bounds: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    moved = x.advantages != 0
    return GateOutput(-x.advantages * x.logps, (x.log_ratio < 0) & moved,
                      (x.log_ratio > 0) & moved)


@REGISTRY.register('soft_sigmoid')
@dataclasses.dataclass(frozen=True)
class SoftSigmoid(Gate):
  """SAPO's gate: the gradient fades with the distance from w = 1.

  J = (4 / tau) sigmoid(tau (w - 1)) A;  g = 4 s (1 - s) w with s the sigmoid.
  All gradients off w = 1 are changed, so all of them count as blocked.

  Attributes:
    tau_positive: temperature where A > 0.
    tau_negative: temperature elsewhere.

  Source: arXiv 2511.20347 (SAPO), as TRL and verl have it.
  """
  tau_positive: float = 1.0
  tau_negative: float = 1.05
  uses_bounds: ClassVar[bool] = False

  def __post_init__(self):
    if not (self.tau_positive > 0 and self.tau_negative > 0):
      raise ValueError(
          f'SoftSigmoid needs temperatures > 0, got {self.tau_positive} and '
          f"{self.tau_negative}. Use the gate 'none' for no fading.")

  def __call__(self, x: GateInputs) -> GateOutput:
    tau = jnp.where(x.advantages > 0, self.tau_positive, self.tau_negative)
    gate = jax.nn.sigmoid(tau * jnp.expm1(x.log_ratio))
    moved = x.advantages != 0
    return GateOutput(-4 / tau * gate * x.advantages,
                      (x.log_ratio < 0) & moved, (x.log_ratio > 0) & moved)


@REGISTRY.register('geometric_mean')
@dataclasses.dataclass(frozen=True)
class GeometricMean(Gate):
  """GMPO's gate: tokens are clipped in log w, then averaged into one ratio.

  J = A exp(mean_t d_t), d_t = log w_t, or its bound where it is outside and
  A (w_t - 1) > 0. A sequence mean of token means gives the published form.

  Source: arXiv 2507.20673 (GMPO), as verl has it.
  """
  needs_ends: ClassVar[bool] = True
  only_tokens: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    low = x.region.below(x.log_ratio) & (x.advantages < 0)
    high = x.region.above(x.log_ratio) & (x.advantages > 0)
    bound = jnp.where(low, x.region.log_low, x.region.log_high)
    kept = jnp.where(x.mask, jnp.where(low | high, bound, x.log_ratio), 0.0)
    count = jnp.maximum(jnp.sum(x.mask, -1, keepdims=True), 1)
    ratio = jnp.exp(jnp.sum(kept, -1, keepdims=True) / count)
    loss = jnp.broadcast_to(-ratio * x.advantages, x.log_ratio.shape)
    return GateOutput(loss, low, high)


def _clipped(x: GateInputs, blocked, log_bound, form: str) -> Array:
  """Minus the ratio, or the bound where blocked, times the advantage."""
  ratio, bound = jnp.exp(x.log_ratio), jnp.exp(log_bound)
  if form == 'surrogate':
    # Select before multiplying: an absent bound is inf.
    return -jnp.where(blocked, bound, ratio) * (x.advantages + x.inside)
  hold = jax.lax.stop_gradient
  kept = -hold((x.advantages + x.inside) * ratio) * x.logps
  # Algorithm 2 clips the weight of the advantage and not that of the penalty.
  weight = jnp.where(blocked, bound, 1.0) * x.advantages + ratio * x.inside
  return jnp.where(blocked, -hold(weight * x.logps), kept)


def _check_form(form: str):
  if form not in _FORMS:
    raise ValueError(
        f'form must be one of {", ".join(_FORMS)}, got {form!r}.')
