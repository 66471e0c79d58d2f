"""What leaving the trust region does to a token's gradient.

Every gate minimizes a loss whose gradient has one form,

  grad loss = -m g A' grad log p,     A' = A + (penalty inside the advantage)

with a mask m and a weight g of the ratio w. "Blocked" means that the gradient
was removed or changed against w A' grad log p; nothing is blocked at w = 1.

  clip       m removes tokens, g = w            PPO, dual clip, ABC
  weight     m = 1, g is held fixed             CISPO, DPPO, TOPR, ASPO, VESPO
  soft       m = 1, g fades or turns            SAPO, SPO, DRPO, PSPO, DRO
  rollback   what PPO removes gets another g    PPO-RB, GPPO
  row        a row's tokens decide together     GMPO, OPSM
  batch      the whole batch's tokens decide    Clip-Cov, KL-Cov

Without the sign test of PPO's gate, tokens on their way back into the region
are frozen too. Where a rule leaves the form (a term without A, a factor at
w = 1), its docstring says so.
"""
from rlclip.trust_region.gates.batch import CovarianceClip, CovariancePenalty
from rlclip.trust_region.gates.clip import (DualClip, PessimisticMin, TwoSided,
                                            Unclipped, Unconditional)
from rlclip.trust_region.gates.gate import (Gate, GateInputs, GateOutput,
                                            REGISTRY)
from rlclip.trust_region.gates.rollback import GradientPreserving, Rollback
from rlclip.trust_region.gates.row import GeometricMean, OffPolicyMask
from rlclip.trust_region.gates.soft import (Quadratic, ShiftQuadratic, Smoothed,
                                            SoftSigmoid, SquaredLog)
from rlclip.trust_region.gates.weight import (ClippedWeight, FlippedWeight,
                                              GammaWeight, MaskedWeight,
                                              TaperedWeight, Unweighted)

__all__ = (
    'ClippedWeight', 'CovarianceClip', 'CovariancePenalty', 'DualClip',
    'FlippedWeight', 'GammaWeight', 'Gate', 'GateInputs', 'GateOutput',
    'GeometricMean', 'GradientPreserving', 'MaskedWeight', 'OffPolicyMask',
    'PessimisticMin', 'Quadratic', 'REGISTRY', 'Rollback', 'ShiftQuadratic',
    'Smoothed', 'SoftSigmoid', 'SquaredLog', 'TaperedWeight', 'TwoSided',
    'Unclipped', 'Unconditional', 'Unweighted')
