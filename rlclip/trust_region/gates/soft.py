"""Gates without a bound: the gradient fades, or turns, with the distance."""
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import GateInputs, GateOutput, REGISTRY


@REGISTRY.register('soft_sigmoid')
@dataclasses.dataclass(frozen=True)
class SoftSigmoid(gate.Gate):
  """SAPO's gate: the gradient fades with the distance from w = 1.

  J = (4 / tau) s A, s = sigmoid(tau (w - 1)); m = 1, g = 4 s (1 - s) w.
  blocked: A != 0 and w != 1: changed.

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
    scaled = tau * jnp.expm1(x.log_ratio)
    rise, fall = jax.nn.sigmoid(scaled), jax.nn.sigmoid(-scaled)
    # rise (1 - rise) has no digits left where rise is close to 1.
    weight = 4 * rise * fall * jnp.exp(x.log_ratio)
    loss = gate.with_slope(x, 4 / tau * rise * x.advantages, weight)
    return GateOutput(loss, *gate.sides(x, x.advantages != 0))


@REGISTRY.register('quadratic', 'spo')
@dataclasses.dataclass(frozen=True)
class Quadratic(gate.Gate):
  """SPO's gate: a parabola that is highest where PPO would start to clip.

  J = w A - |A| (w - 1)^2 / (2 eps); m = 1, g = w (1 - sign(A) (w - 1) / eps).
  At w = 1 + sign(A) eps the gradient is 0, and beyond it pulls back. Tokens
  that moved the wrong way get more than w.
  blocked: A != 0 and w != 1: changed.

  Attributes:
    soft_eps: eps, the distance from 1 at which the gradient turns.

  Source: arXiv 2401.16025 (SPO), second-hand; TorchRL. 0.2 as in PPO.
  """
  soft_eps: float = 0.2
  uses_bounds: ClassVar[bool] = False

  def __post_init__(self):
    gate.check_positive('Quadratic', soft_eps=self.soft_eps)

  def __call__(self, x: GateInputs) -> GateOutput:
    excess = jnp.expm1(x.log_ratio)
    shift = excess / self.soft_eps
    return _parabola(x, excess, shift)


@REGISTRY.register('shift_quadratic', 'drpo')
@dataclasses.dataclass(frozen=True)
class ShiftQuadratic(gate.Gate):
  """DRPO's gate: as SPO's, with the shift of the probability for its width.

  J = w A - |A| mu (w - 1)^2 / (2 delta), mu the anchor's probability; m = 1,
  g = w (1 - sign(A) (p - mu) / delta), so 0 where p - mu = sign(A) delta.
  A rare token may move far, a common one may not.
  blocked: A != 0 and w != 1: changed.

  Attributes:
    soft_shift: delta, the change of probability at which the gradient turns.

  Source: arXiv 2606.09821 (DRPO), second-hand. No default was found; 0.15,
  that of DPPO's binary total variation, whose geometry it keeps, is a guess.
  """
  soft_shift: float = 0.15
  uses_bounds: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True

  def __post_init__(self):
    gate.check_positive('ShiftQuadratic', soft_shift=self.soft_shift)

  def __call__(self, x: GateInputs) -> GateOutput:
    excess = jnp.expm1(x.log_ratio)
    shift = jnp.exp(x.anchor_logps) * excess / self.soft_shift
    return _parabola(x, excess, shift)


@REGISTRY.register('smoothed', 'pspo')
@dataclasses.dataclass(frozen=True)
class Smoothed(gate.Gate):
  """PSPO's gate: the policy is mixed with the anchor before the ratio.

  J = ((1 - a) w + a) A; m = 1, g = (1 - a) w.
  By itself that is the gate 'none' with a gradient (1 - a) as large: under
  Adam the same rule. The factor is there at w = 1 as well, so it is a scale
  and not a block; blocked nowhere.

  Attributes:
    smoothing: a, the anchor's share, in [0, 1).

  Source: arXiv 2509.21282 and TRL's pull request 4548 (PSPO), second-hand;
  0.1 is a guess. What it comes to: derived here.
  """
  smoothing: float = 0.1
  uses_bounds: ClassVar[bool] = False

  def __post_init__(self):
    if not 0 <= self.smoothing < 1:
      raise ValueError(
          f'Smoothed needs 0 <= smoothing < 1, got {self.smoothing}. At 1 no '
          f'gradient is left.')

  @property
  def scale(self) -> float:
    return 1 - self.smoothing

  def __call__(self, x: GateInputs) -> GateOutput:
    never = jnp.zeros(x.log_ratio.shape, bool)
    ratio = self.scale * jnp.exp(x.log_ratio) + self.smoothing
    return GateOutput(-ratio * x.advantages, never, never)


@REGISTRY.register('squared_log', 'dro')
@dataclasses.dataclass(frozen=True)
class SquaredLog(gate.Gate):
  """DRO's gate: no ratio in the weight, and a spring in log w.

  loss = -A log p + (strength / 2) log^2 w; the gradient is
  -(A - strength log w) grad log p: the spring has no factor A.
  blocked: w != 1, also where A = 0: changed. (At A w = A - strength log w,
  apart from w = 1, it happens not to be.)

  Attributes:
    strength: of the spring, in units of the advantage per nat.

  Source: Richemond et al., arXiv 2405.19107 (DRO), second-hand; 0.05 is the
  example in Tinker's documentation.
  """
  strength: float = 0.05
  uses_bounds: ClassVar[bool] = False

  def __post_init__(self):
    gate.check_positive('SquaredLog', strength=self.strength)

  def __call__(self, x: GateInputs) -> GateOutput:
    spring = self.strength / 2 * jnp.square(x.log_ratio)
    return GateOutput(gate.weighted(x, 1.0) + spring, *gate.sides(x, True))


def _parabola(x: GateInputs, excess, shift) -> GateOutput:
  """J = w A - |A| (w - 1) shift / 2, g = w (1 - sign(A) shift)."""
  ratio = jnp.exp(x.log_ratio)
  objective = ratio * x.advantages - jnp.abs(x.advantages) * excess * shift / 2
  weight = ratio * (1 - jnp.sign(x.advantages) * shift)
  return GateOutput(gate.with_slope(x, objective, weight),
                    *gate.sides(x, x.advantages != 0))
