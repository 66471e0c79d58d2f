"""Gates that weigh A log p with a function of the ratio, held fixed."""
import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import GateInputs, GateOutput, REGISTRY


@REGISTRY.register('unweighted')
@dataclasses.dataclass(frozen=True)
class Unweighted(gate.Gate):
  """REINFORCE as it stands: the ratio is not looked at.

  loss = -A log p; m = 1, g = 1. Biased as soon as the policy is not the one
  that sampled.
  blocked: A != 0 and w != 1, where the gradient differs from that of w A.

  Source: Williams, 1992.
  """
  uses_bounds: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    return GateOutput(
        gate.weighted(x, 1.0), *gate.sides(x, x.advantages != 0))


@REGISTRY.register('clipped_weight')
@dataclasses.dataclass(frozen=True)
class ClippedWeight(gate.Gate):
  """No token loses its gradient; its weight is the clipped ratio, held fixed.

  loss = -SG(clip(w, low, high)) A log p; m = 1, g = clip(w).
  blocked = outside and A != 0: changed, never removed.

  Source: MiniMax, arXiv 2506.13585 (CISPO), with an upper bound only.
  """
  needs_ends: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = x.region.below(x.log_ratio), x.region.above(x.log_ratio)
    weight = jnp.exp(jnp.where(low | high, gate.end(x, low), x.log_ratio))
    moved = x.advantages != 0
    return GateOutput(gate.weighted(x, weight), low & moved, high & moved)


@REGISTRY.register('masked_weight')
@dataclasses.dataclass(frozen=True)
class MaskedWeight(gate.Gate):
  """PPO's mask on a policy gradient whose weight is the capped ratio.

  loss = -m SG(min(w, cap)) A log p; g = min(w, cap).
  m = 0 where outside and A (w - 1) > 0, by whichever test the bounds are: with
  DPPO's binary divergences this is DPPO. The loss is 0 where m is.
  blocked: m = 0 (removed), or w > cap and A != 0 (changed).

  Attributes:
    cap: largest weight, > 1; inf for none.

  Source: arXiv 2602.04879 (DPPO) in the form that verl has, cap 20; its script
  sets 1e4. Second-hand.
  """
  cap: float = 20.0

  def __post_init__(self):
    gate.check_cap('MaskedWeight', 'cap', self.cap)

  def __call__(self, x: GateInputs) -> GateOutput:
    log_cap = math.log(self.cap)
    low, high = gate.leaving(x, x.advantages)
    weight = jnp.exp(jnp.minimum(x.log_ratio, log_cap))
    loss = jnp.where(low | high, 0.0, gate.weighted(x, weight))
    capped = (x.log_ratio > log_cap) & (x.advantages != 0)
    return GateOutput(loss, low, high | capped)


@REGISTRY.register('tapered_weight', 'tapered')
@dataclasses.dataclass(frozen=True)
class TaperedWeight(gate.Gate):
  """TOPR's gate: good samples weigh 1, bad ones fade as they get unlikely.

  loss = -A log p where A > 0, -SG(clip(W, 0, 1)) A log p elsewhere; m = 1.
  Published with W the ratio of the whole sequence: level 'sequence_product'
  (log p is then that of the sequence) or 'sequence_product_token'.
  blocked: A > 0 and W != 1, or A < 0 and W > 1: changed, never removed.

  Source: arXiv 2503.14286 (TOPR), second-hand.
  """
  uses_bounds: ClassVar[bool] = False

  def __call__(self, x: GateInputs) -> GateOutput:
    good, bad = x.advantages > 0, x.advantages < 0
    weight = jnp.where(good, 1.0, jnp.exp(jnp.minimum(x.log_ratio, 0.0)))
    return GateOutput(
        gate.weighted(x, weight), (x.log_ratio < 0) & good,
        (x.log_ratio > 0) & (good | bad))


@REGISTRY.register('flipped_weight')
@dataclasses.dataclass(frozen=True)
class FlippedWeight(gate.Gate):
  """ASPO's gate: a good token weighs 1 / w, the more the rarer it became.

  A > 0: g = min(1 / w, cap), m = 0 where w > high;
  A < 0: g = min(w, cap_negative), m = 0 where w < low.
  The caps are soft: beyond them the gradient has the cap's weight. PPO's masks
  remain on both signs, so that a good token above the bound has no gradient,
  although its weight is flipped. The loss's value is that of -g A.
  blocked: A > 0 and w != 1 (changed, or removed above high); A < 0 and w < low
  (removed) or w > cap_negative (changed).

  Attributes:
    cap: largest weight where A > 0, > 1; inf for none.
    cap_negative: largest weight where A < 0, > 1; inf for plain PPO there.

  Source: arXiv 2510.06062 (ASPO). What remains of the clip was read in code: a
  public copy of its authors' Archer2.0 and another port agree on it. The paper
  itself was not read; summaries give plain PPO for A < 0. The code's bounds
  are 0.2, and 0.4 for tokens of high entropy, which is left out here.
  """
  cap: float = 3.0
  cap_negative: float = 3.0

  def __post_init__(self):
    gate.check_cap('FlippedWeight', 'cap', self.cap)
    gate.check_cap('FlippedWeight', 'cap_negative', self.cap_negative)

  def __call__(self, x: GateInputs) -> GateOutput:
    good, bad = x.advantages > 0, x.advantages < 0
    low, high = gate.leaving(x, x.advantages)
    log_cap = jnp.where(good, math.log(self.cap), math.log(self.cap_negative))
    signed = jnp.where(good, -x.log_ratio, x.log_ratio)
    weight = jnp.exp(jnp.minimum(signed, log_cap))
    capped = (x.log_ratio > math.log(self.cap_negative)) & bad
    loss = gate.with_slope(
        x, weight * x.advantages, jnp.where(low | high, 0.0, weight))
    return GateOutput(loss, low | ((x.log_ratio < 0) & good),
                      ((x.log_ratio > 0) & good) | capped)


@REGISTRY.register('gamma_weight', 'vespo')
@dataclasses.dataclass(frozen=True)
class GammaWeight(gate.Gate):
  """VESPO's gate: a weight that rises with the ratio and then falls to 0.

  loss = -SG(W^k exp(lambda (1 - W))) A log p; m = 1, g is the weight, 1 at
  W = 1 and largest at W = k / lambda. k and lambda by the sign of A.
  Published with W the ratio of the whole sequence: level
  'sequence_product_token', where each token's log p has its own gradient.
  blocked: A != 0 and W != 1: changed.

  Attributes:
    power_positive: k where A > 0.
    decay_positive: lambda where A > 0.
    power_negative: k elsewhere.
    decay_negative: lambda elsewhere.

  Source: arXiv 2602.10693 (VESPO), second-hand; numbers as in TRL.
  """
  power_positive: float = 2.0
  decay_positive: float = 3.0
  power_negative: float = 3.0
  decay_negative: float = 2.0
  uses_bounds: ClassVar[bool] = False

  def __post_init__(self):
    gate.check_positive('GammaWeight', **dataclasses.asdict(self))

  def __call__(self, x: GateInputs) -> GateOutput:
    good = x.advantages > 0
    power = jnp.where(good, self.power_positive, self.power_negative)
    decay = jnp.where(good, self.decay_positive, self.decay_negative)
    # In logarithms: W^k would overflow where the exponential is 0.
    weight = jnp.exp(power * x.log_ratio - decay * jnp.expm1(x.log_ratio))
    return GateOutput(
        gate.weighted(x, weight), *gate.sides(x, x.advantages != 0))
