"""Gates whose tokens look at the other tokens of their row."""
import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import GateInputs, GateOutput, REGISTRY


@REGISTRY.register('geometric_mean')
@dataclasses.dataclass(frozen=True)
class GeometricMean(gate.Gate):
  """GMPO's gate: tokens are clipped in log w, then averaged into one ratio.

  J = A exp(mean_t d_t), d_t = log w_t, or its bound where it is outside and
  A (w_t - 1) > 0. A sequence mean of token means gives the published form.
  m = not blocked, g = that ratio, which replaces w for the whole row.
  blocked = outside and A (w_t - 1) > 0: removed.

  Source: arXiv 2507.20673 (GMPO), as verl has it.
  """
  needs_ends: ClassVar[bool] = True
  only_tokens: ClassVar[bool] = True

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, x.advantages)
    kept = jnp.where(low | high, gate.end(x, low), x.log_ratio)
    ratio = jnp.exp(gate.row_mean(kept, x.mask))
    loss = jnp.broadcast_to(-ratio * x.advantages, x.log_ratio.shape)
    return GateOutput(loss, low, high)


@REGISTRY.register('off_policy_mask', 'opsm')
@dataclasses.dataclass(frozen=True)
class OffPolicyMask(gate.Gate):
  """PPO's gate, and no gradient for bad rows that became unlikely.

  m = 0 for all of a row with A < 0 and mean_t log(anchor_t / p_t) > drift, and
  where PPO blocks; g = w. The loss of a dropped row is 0.
  blocked: removed, by either. A dropped row counts as low, since on average
  it moved down; single tokens in it may have moved up, or not at all.

  Attributes:
    drift: largest mean log-ratio, in nats a token, > 0.

  Source: DeepSeek-V3.2, arXiv 2512.02556, second-hand, and TRL's
  `off_policy_mask_threshold` (against the sampler: anchor 'behavior'). The
  paper gives no number; 0.5 is that of TRL's documentation.
  """
  drift: float = 0.5

  def __post_init__(self):
    gate.check_positive('OffPolicyMask', drift=self.drift)

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, x.advantages)
    away = -gate.row_mean(gate.hold(x.log_ratio), x.mask) > self.drift
    dropped = away & (x.advantages < 0)
    loss = jnp.where(
        dropped, 0.0, gate.clipped(x, low | high, gate.end(x, low)))
    return GateOutput(loss, low | dropped, high)
