"""Gates that remove gradients outside of the region, and leave the others."""
import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import GateInputs, GateOutput, REGISTRY


@REGISTRY.register('pessimistic_min', 'ppo')
@dataclasses.dataclass(frozen=True)
class PessimisticMin(gate.Gate):
  """PPO's gate: beyond a bound there is nothing to gain.

  J = min(w A, clip(w, low, high) A); m = not blocked, g = w.
  blocked = outside and A (w - 1) > 0: the gradient is removed. A token that
  moved the wrong way keeps its gradient.

  Attributes:
    form: 'surrogate' takes the gradient through w, 'score' holds w and takes
      it through log p (REINFORCE); the gradients are equal.

  Source: Schulman et al., arXiv 1707.06347, equation 7.
  """
  form: str = 'surrogate'
  takes_inside: ClassVar[bool] = True

  def __post_init__(self):
    gate.check_form(self.form)

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, gate.hold(x.advantages + x.inside))
    return GateOutput(
        gate.clipped(x, low | high, gate.end(x, low), self.form), low, high)


@REGISTRY.register('dual_clip')
@dataclasses.dataclass(frozen=True)
class DualClip(gate.Gate):
  """PPO's gate, and a cap on how hard a bad token is pushed down.

  A >= 0: J = min(w A, clip(w) A);  A < 0: J = max(min(w A, clip(w) A), cap A).
  m = not blocked, g = w; blocked as in PPO, or A < 0 and w > cap: removed.
  With a penalty inside the advantage this is RPG-Style Clip, and in the form
  'score' its Algorithm 2. INTELLECT-2's two-sided clip is the same rule while
  cap >= high, and another one under it: see TwoSided.

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
    gate.check_form(self.form)
    _check_cap('DualClip', self.cap)

  def __call__(self, x: GateInputs) -> GateOutput:
    signed = gate.hold(x.advantages + x.inside)
    log_cap = math.log(self.cap)
    low, high = gate.leaving(x, signed)
    capped = (x.log_ratio > log_cap) & (signed < 0)
    bound = jnp.where(capped, log_cap, gate.end(x, low))
    blocked = low | high | capped
    return GateOutput(
        gate.clipped(x, blocked, bound, self.form), low, high | capped)


@REGISTRY.register('two_sided')
@dataclasses.dataclass(frozen=True)
class TwoSided(gate.Gate):
  """INTELLECT-2's gate: the ratio itself is capped, before PPO's min.

  J = min(min(w, cap) A, clip(w, low, high) A); m = not blocked, g = w.
  blocked: A < 0 and (w < low or w > max(cap, high)), or A > 0 and
  w > min(cap, high): removed. With cap >= high, as published (4 and 1.2), that
  is the dual clip, loss and gradient. Where a token's bound is above the cap
  (DCPO has bounds up to 10) a good token stops at the cap and a bad one only
  at the bound, and the dual clip does the opposite of both.

  Attributes:
    cap: delta of the paper, > 1.

  Source: Prime Intellect, arXiv 2505.07291 (second-hand), and TRL's option
  `delta` as read in its code; where it parts from the dual clip: derived here.
  """
  cap: float = 4.0
  takes_inside: ClassVar[bool] = True

  def __post_init__(self):
    _check_cap('TwoSided', self.cap)

  def __call__(self, x: GateInputs) -> GateOutput:
    signed = gate.hold(x.advantages + x.inside)
    log_cap = math.log(self.cap)
    above, capped = x.region.above(x.log_ratio), x.log_ratio > log_cap
    low, _ = gate.leaving(x, signed)
    high = jnp.where(signed > 0, above | capped, above & capped) & (signed != 0)
    bound = jnp.where(signed > 0, jnp.minimum(log_cap, x.region.log_high),
                      jnp.maximum(log_cap, x.region.log_high))
    bound = jnp.where(low, x.region.log_low, bound)
    return GateOutput(gate.clipped(x, low | high, bound), low, high)


@REGISTRY.register('unconditional')
@dataclasses.dataclass(frozen=True)
class Unconditional(gate.Gate):
  """Outside of the region there is no gradient, in whichever direction.

  J = clip(w, low, high) A, without the min; m = inside, g = w.
  blocked = outside and A != 0: removed. A token that moved the wrong way stays
  where it is.

  Source: Liu and Chen, arXiv 2601.03895 (ABC-GRPO), equation 5.
  """
  takes_inside: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    moved = x.advantages + x.inside != 0
    low = x.region.below(x.log_ratio) & moved
    high = x.region.above(x.log_ratio) & moved
    return GateOutput(
        gate.clipped(x, low | high, gate.end(x, low)), low, high)


@REGISTRY.register('none')
@dataclasses.dataclass(frozen=True)
class Unclipped(gate.Gate):
  """No trust region: the importance-weighted policy gradient.

  J = w A; m = 1, g = w; blocked nowhere.

  Source: textbook; the objective that PPO clips.
  """
  uses_bounds: ClassVar[bool] = False
  takes_inside: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    never = jnp.zeros(x.log_ratio.shape, bool)
    return GateOutput(gate.clipped(x, never, 0.0), never, never)


def _check_cap(name, cap):
  if not 1 < cap < math.inf:
    raise ValueError(
        f'{name} needs a finite cap > 1, got {cap}. Use the gate '
        f"'pessimistic_min' for no cap.")
