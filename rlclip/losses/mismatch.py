"""Corrections where sampler and learner disagree on the same weights.

With the ratio anchored to the learner's own recomputation (old), tokens still
come from the sampler (behavior). A correction multiplies the token's loss,
penalty included, by a function of k = old / behavior. It is no trust region:
it does not depend on the current policy.
"""
import dataclasses
import math
from typing import Any

import jax.numpy as jnp

from rlclip import registry

Array = Any

REGISTRY = registry.Registry('mismatch correction')


@REGISTRY.register('truncated_importance', 'tis')
@dataclasses.dataclass(frozen=True)
class TruncatedImportance:
  """The importance weight, cut off above: loss x min(k, truncation).

  Attributes:
    truncation: largest weight, C of the source.

  Source: TRL, verl and OpenRLHF (TIS), as their code has it.
  """
  truncation: float = 2.0

  def __post_init__(self):
    if not 0 < self.truncation < math.inf:
      raise ValueError(
          f'TruncatedImportance needs a finite truncation > 0, got '
          f"{self.truncation}. Use the anchor 'behavior' for the whole weight.")

  def __call__(self, log_ratio: Array) -> Array:
    return jnp.minimum(jnp.exp(log_ratio), self.truncation)


@REGISTRY.register('icepop', 'mis')
@dataclasses.dataclass(frozen=True)
class IcePop:
  """The importance weight where it is moderate, 0 elsewhere.

  loss x k 1{mismatch_low <= k <= mismatch_high}.

  Attributes:
    mismatch_low: smallest weight kept, alpha of the source.
    mismatch_high: largest weight kept, beta of the source.

  Source: arXiv 2510.18855 (IcePop).
  """
  mismatch_low: float = 0.5
  mismatch_high: float = 5.0

  def __post_init__(self):
    if not 0 <= self.mismatch_low < 1 < self.mismatch_high:
      raise ValueError(
          f'IcePop needs 0 <= mismatch_low < 1 < mismatch_high, got '
          f'{self.mismatch_low} and {self.mismatch_high}.')

  def __call__(self, log_ratio: Array) -> Array:
    weight = jnp.exp(log_ratio)
    kept = (self.mismatch_low <= weight) & (weight <= self.mismatch_high)
    return jnp.where(kept, weight, 0.0)
