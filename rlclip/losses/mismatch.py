"""Corrections where sampler and learner disagree on the same weights.

With the ratio anchored to the learner's own recomputation (old), tokens still
come from the sampler (behavior). A correction multiplies the token's loss,
penalty included, by a function of k = old / behavior, of the token or of its
sequence. It is no trust region: it does not depend on the current policy.
"""
import dataclasses
import math
from typing import Any

import jax.numpy as jnp

from rlclip import divergences, registry
from rlclip.losses import log_ratio as log_ratio_lib
from rlclip.trust_region import levels

Array = Any

REGISTRY = registry.Registry('mismatch correction')
_STATISTICS = {
    'k1': lambda d: -d,
    'k3': lambda d: divergences.get('forward_kl').generator(d),
}


@REGISTRY.register('truncated_importance', 'tis')
@dataclasses.dataclass(frozen=True)
class TruncatedImportance:
  """The importance weight, cut off above: loss x min(k, truncation).

  Attributes:
    truncation: largest weight, C of the source.
    mismatch_level: whose k: 'token', 'sequence' (geometric mean) or
      'sequence_product'.

  Source: TRL, verl and OpenRLHF (TIS), as their code has it.
  """
  truncation: float = 2.0
  mismatch_level: str = 'token'

  def __post_init__(self):
    levels.get(self.mismatch_level)
    if not 0 < self.truncation < math.inf:
      raise ValueError(
          f'TruncatedImportance needs a finite truncation > 0, got '
          f"{self.truncation}. Use the anchor 'behavior' for the whole weight.")

  def __call__(self, log_ratio: Array, mask: Array) -> Array:
    weight = _weight(self.mismatch_level, log_ratio, mask)
    return jnp.minimum(weight, self.truncation)


@REGISTRY.register('icepop', 'mis')
@dataclasses.dataclass(frozen=True)
class IcePop:
  """The importance weight where it is moderate, 0 elsewhere.

  loss x k 1{mismatch_low <= k <= mismatch_high}. Of sequences it masks as
  seq-mask-TIS does: one whose weight is out of range is left out whole.
  (OpenRLHF decides so by the geometric mean and then weighs each token by its
  own k; here both are of the level.)

  Attributes:
    mismatch_low: smallest weight kept, alpha of the source.
    mismatch_high: largest weight kept, beta of the source.
    mismatch_level: whose k: 'token', 'sequence' (geometric mean) or
      'sequence_product'.

  Source: arXiv 2510.18855 (IcePop); of sequences: OpenRLHF and verl, as
  their code has it.
  """
  mismatch_low: float = 0.5
  mismatch_high: float = 5.0
  mismatch_level: str = 'token'

  def __post_init__(self):
    levels.get(self.mismatch_level)
    if not 0 <= self.mismatch_low < 1 < self.mismatch_high:
      raise ValueError(
          f'IcePop needs 0 <= mismatch_low < 1 < mismatch_high, got '
          f'{self.mismatch_low} and {self.mismatch_high}.')

  def __call__(self, log_ratio: Array, mask: Array) -> Array:
    weight = _weight(self.mismatch_level, log_ratio, mask)
    kept = (self.mismatch_low <= weight) & (weight <= self.mismatch_high)
    return jnp.where(kept, weight, 0.0)


@REGISTRY.register('sequence_mask', 'trm')
@dataclasses.dataclass(frozen=True)
class SequenceMask:
  """Leaves out sequences on which learner and sampler differ too much.

  loss x 1{aggregate_t statistic(k_t) <= threshold}, with k1 = -log k, whose
  mean is KL(sampler || learner), or k3 = k - 1 - log k, which is never
  negative. Kept sequences are not weighted.

  Attributes:
    threshold: nats a token.
    statistic: 'k1' or 'k3'.
    aggregate: 'mean' or 'max' over the tokens of a sequence.

  Source: second-hand, as masks of arXiv 2512.23075 (TRM) and verl; no
  default of theirs is known, the threshold is ours.
  """
  threshold: float = 0.01
  statistic: str = 'k3'
  aggregate: str = 'mean'

  def __post_init__(self):
    for name, allowed in (('statistic', tuple(_STATISTICS)),
                          ('aggregate', ('mean', 'max'))):
      if getattr(self, name) not in allowed:
        raise ValueError(
            f'SequenceMask.{name} must be one of {", ".join(allowed)}, got '
            f'{getattr(self, name)!r}.')
    if not 0 < self.threshold < math.inf:
      raise ValueError(
          f'SequenceMask needs a finite threshold > 0, got {self.threshold}.')

  def __call__(self, log_ratio: Array, mask: Array) -> Array:
    values = _STATISTICS[self.statistic](log_ratio)
    if self.aggregate == 'max':
      found = jnp.max(jnp.where(mask, values, -jnp.inf), -1, keepdims=True)
    else:
      count = jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1)
      found = jnp.sum(jnp.where(mask, values, 0.0), -1, keepdims=True) / count
    kept = (found <= self.threshold).astype(log_ratio.dtype)
    return jnp.broadcast_to(kept, log_ratio.shape)


def _weight(level, log_ratio, mask):
  """k of the level, [N, C], inside float range."""
  at_level = levels.get(level)(jnp.where(mask, log_ratio, 0.0), mask)
  return jnp.exp(log_ratio_lib.limit(at_level).value)
