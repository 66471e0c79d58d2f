"""Gates that give another gradient to the tokens that PPO would block."""
import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import GateInputs, GateOutput, REGISTRY


@REGISTRY.register('rollback')
@dataclasses.dataclass(frozen=True)
class Rollback(gate.Gate):
  """PPO's gate with a slope that leads back, where PPO's is flat.

  J = min(w A, F A), F = (1 + alpha) b - alpha w where blocked, w elsewhere;
  g = -alpha w where blocked. b is the bound, PPO-RB; where the region is only
  a test (an exact divergence), b = 1, TR-PPO-RB, which the paper writes as
  F = -alpha w: the same gradient, another constant in the loss.
  blocked = outside and A (w - 1) > 0: turned round.

  Attributes:
    alpha: slope, > 0; 0 would be 'pessimistic_min'.

  Source: Wang et al., PMLR 115 (Truly PPO), equations 11 and 16; alpha 0.3 for
  PPO-RB, 0.05 or 0.1 for TR-PPO-RB.
  """
  alpha: float = 0.3
  takes_inside: ClassVar[bool] = True

  def __post_init__(self):
    gate.check_positive('Rollback', alpha=self.alpha)

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, gate.hold(x.advantages + x.inside))
    ratio, bound = jnp.exp(x.log_ratio), jnp.exp(gate.end(x, low))
    rolled = (1 + self.alpha) * bound - self.alpha * ratio
    # Select before multiplying: an absent bound is inf.
    loss = -jnp.where(low | high, rolled, ratio) * (x.advantages + x.inside)
    return GateOutput(loss, low, high)


@REGISTRY.register('gradient_preserving')
@dataclasses.dataclass(frozen=True)
class GradientPreserving(gate.Gate):
  """GPPO's gate: a blocked token keeps a gradient, that of its bound.

  g = beta_low low where A < 0 and w < low, beta_high high where A > 0 and
  w > high, w elsewhere; m = 1. The loss's value is that of -g A.
  blocked = outside and A (w - 1) > 0, changed; or A < 0 and w > cap, removed
  as by the dual clip.

  Attributes:
    beta_low: share of the gradient kept below, > 0. 1 in GPPO; CE-GPPO has
      0.75, 0.5 or 0.25.
    beta_high: share kept above, > 0. 1 in GPPO and in CE-GPPO.
    cap: of the dual clip that CE-GPPO's code has besides (3); inf for none.

  Source: arXiv 2508.07629 (GPPO) and 2509.20712 (CE-GPPO). CE-GPPO's loss was
  read in its repository: beta_low 0.75 in code and 7B script, 0.5 in the 1.5B
  script, beta_high 1, cap 3; the papers' own text second-hand (0.25 or 0.75).
  """
  beta_low: float = 1.0
  beta_high: float = 1.0
  cap: float = math.inf
  needs_ends: ClassVar[bool] = True

  def __post_init__(self):
    gate.check_positive('GradientPreserving', beta_low=self.beta_low,
                        beta_high=self.beta_high)
    gate.check_cap('GradientPreserving', 'cap', self.cap)

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, x.advantages)
    log_cap = math.log(self.cap)
    capped = (x.log_ratio > log_cap) & (x.advantages < 0)
    share = jnp.where(low, self.beta_low, jnp.where(high, self.beta_high, 1.0))
    kept = share * jnp.exp(
        jnp.where(low | high, gate.end(x, low), x.log_ratio))
    value = jnp.where(capped, self.cap, kept)
    loss = gate.with_slope(
        x, value * x.advantages, jnp.where(capped, 0.0, kept))
    return GateOutput(loss, low, high | capped)
