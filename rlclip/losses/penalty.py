"""A price on the distance to another policy, beside the loss or inside A.

Samples come from the ratio's anchor (the sampler), w = p / sampler, and the
penalty holds the policy to a target q: the reference, or the sampler itself.
With r = p / q and D = E_q[f(r)],

  D = E_sampler[(q / sampler) f(r)]
  grad D = E_sampler[w f'(r) grad log p]

Over whole sequences the sum of the tokens' forward KL is the sequence's, with
prefixes from the sampler. The reverse KL's prefixes come from the policy:
token by token it is a surrogate of first order, exact with the prefix's ratio
in front (the estimator 'prefix').
"""
import dataclasses
import math
from typing import Any, Mapping, NamedTuple

import jax
import jax.numpy as jnp

from rlclip import divergences
from rlclip.losses import log_ratio as log_ratio_lib
from rlclip.types import Statistic

Array = Any

TARGETS = ('reference', 'anchor')
PLACEMENTS = ('beside', 'inside')
_SUMMED = ('exact', 'prefix')
ESTIMATORS = {
    'pathwise': '(q / sampler) f(r), differentiated; unbiased, and for the '
                'reverse KL equal to w k3 with the gradient through w',
    'score': 'w f\'(r) log p, the weight held fixed; the same gradient beside, '
             'and inside without the gradient through the advantage',
    'exact': 'D of the whole distributions at each position; no sampling '
             'noise, one more pass of the target\'s weights',
    'prefix': 'exp(sum_{s<=t} log w_s) log r_t, differentiated; the exact '
              'gradient of the sequences\' reverse KL',
    'unweighted_k1': 'log r; as a loss its gradient on policy is zero-mean '
                     'noise, and off policy it knows nothing of q',
    'unweighted_k2': 'log(r)^2 / 2; on policy the gradient of KL(p || q)',
    'unweighted_k3': '1/r - 1 + log r, GRPO\'s; on policy the gradient of '
                     'KL(q || p), the other direction',
}


class PenaltyOutput(NamedTuple):
  value: Array  # [N, C], without beta, differentiable
  limited: Array  # bool[N, C], log-ratios beyond float range


@dataclasses.dataclass(frozen=True)
class Penalty:
  """beta D, with the divergence, the target and the gradient named.

  Attributes:
    measure: a divergence, D(p || q) = E_q[f(p / q)].
    beta: weight, in units of reward per unit of the divergence.
    toward: q: 'reference', or 'anchor' for the policy under the ratio.
    estimator: one of ESTIMATORS.
    placement: 'beside' adds beta D to the clipped loss, unclipped; 'inside'
      puts -beta f'(r) into the advantage, so that the gate decides over both
      (RPG-Style Clip).
    control_variate: c; adds c (w - 1), of mean zero under the sampler. -1 with
      the forward KL and +1 with the reverse KL are RPG's normalized FKL, RKL.

  Source: Zhang et al., arXiv 2505.17508 (RPG); unweighted_k3: Shao et al.,
  arXiv 2402.03300 (GRPO).
  """
  measure: str = 'reverse_kl'
  beta: float = 1e-3
  toward: str = 'reference'
  estimator: str = 'pathwise'
  placement: str = 'beside'
  control_variate: float = 0.0

  def __post_init__(self):
    self._check_values()
    self._check_estimator()

  def _check_values(self):
    for name, allowed in (('toward', TARGETS), ('placement', PLACEMENTS),
                          ('estimator', tuple(ESTIMATORS))):
      if getattr(self, name) not in allowed:
        raise ValueError(
            f'Penalty.{name} must be one of {", ".join(allowed)}, got '
            f'{getattr(self, name)!r}.')
    if not 0 < self.beta < math.inf:
      raise ValueError(
          f'Penalty needs a finite beta > 0, got {self.beta}. Use '
          f'penalty=None for no penalty.')
    divergences.get(self.measure)

  def _check_estimator(self):
    measure = divergences.canonical(self.measure)
    if self.estimator in _SUMMED and (
        self.placement != 'beside' or self.control_variate):
      raise ValueError(
          f"The estimator {self.estimator!r} stands beside the loss and takes "
          f'no control variate; got placement {self.placement!r}, '
          f"control_variate {self.control_variate}. Use 'pathwise'.")
    if self.estimator != 'exact' and (
        not divergences.get(self.measure).per_sample):
      raise ValueError(
          f'{self.measure} is no mean over samples, and {self.estimator!r} '
          f"takes one. Use the estimator 'exact'.")
    if (self._is_unweighted or self.estimator == 'prefix') and (
        measure != 'reverse_kl' or self.placement != 'beside'
        or self.control_variate):
      raise ValueError(
          f'{self.estimator} is an estimator of the reverse KL, beside the '
          f'loss and without control variate; got measure {self.measure!r}, '
          f'placement {self.placement!r}, control_variate '
          f"{self.control_variate}. Use the estimator 'pathwise'.")
    if (self.placement == 'inside' and self.estimator == 'pathwise'
        and measure != 'reverse_kl'):
      raise ValueError(
          f'The gradient through the advantage has mean zero for reverse_kl '
          f"only, got {self.measure!r}. Use estimator='score' inside, or "
          f"placement='beside'.")

  @property
  def needs(self) -> tuple[Statistic, ...]:
    """Statistics of whole distributions that the estimator reads."""
    return (self._statistic,) if self.estimator == 'exact' else ()

  @property
  def _statistic(self) -> Statistic:
    return Statistic(self.measure, self.toward)

  @property
  def _is_unweighted(self) -> bool:
    return self.estimator.startswith('unweighted')

  def beside(self, logps: Array, target_logps: Array, anchor_logps: Array,
             statistics: Mapping[Statistic, Array] | None = None
             ) -> PenaltyOutput:
    """The penalty of each token, to be added beta times.

    Args:
      logps: [N, C], of the policy; masked entries of all three are 0.
      target_logps: [N, C], of q.
      anchor_logps: [N, C], of the sampler.
      statistics: [N, C] each, for the estimator 'exact'; differentiable.

    Returns:
      The PenaltyOutput.
    """
    ratio = log_ratio_lib.limit(logps - target_logps)
    d = ratio.value
    if self.estimator == 'exact':
      return PenaltyOutput(statistics[self._statistic],
                           jnp.zeros(jnp.shape(d), bool))
    if self.estimator == 'prefix':
      prefix = log_ratio_lib.limit(jnp.cumsum(logps - anchor_logps, -1))
      return PenaltyOutput(jnp.exp(prefix.value) * d,
                           ratio.limited | prefix.limited)
    if self.estimator == 'unweighted_k1':
      return PenaltyOutput(d, ratio.limited)
    if self.estimator == 'unweighted_k2':
      return PenaltyOutput(0.5 * d ** 2, ratio.limited)
    if self.estimator == 'unweighted_k3':
      # k3 of the inverted ratio is the forward KL's generator at -d.
      return PenaltyOutput(
          divergences.get('forward_kl').generator(-d), ratio.limited)
    measure = divergences.get(self.measure)
    shift = log_ratio_lib.limit(target_logps - anchor_logps)
    scale = jnp.exp(shift.value)
    value = measure.generator(d) + self.control_variate * jnp.expm1(d)
    if self.estimator == 'score':
      hold = jax.lax.stop_gradient
      weight = measure.weight(d) + self.control_variate * jnp.exp(d)
      value = hold(value) + hold(weight) * (logps - hold(logps))
    return PenaltyOutput(scale * value, ratio.limited | shift.limited)

  def inside(self, log_ratio: Array, factor: Array | float = 1.0) -> Array:
    """-beta (f'(r) + c), the penalty's part of the advantage.

    Args:
      log_ratio: [N, C], log r, limited.
      factor: what a dial multiplies beta by.

    Returns:
      [N, C]; with the estimator 'pathwise' the gradient flows through it.
    """
    slope = divergences.get(self.measure).slope(log_ratio)
    part = -self.beta * factor * (slope + self.control_variate)
    return part if self.estimator == 'pathwise' else jax.lax.stop_gradient(part)
