"""From a loss a token to one Mean, whose weight the policy does not touch.

A reduction is a weight for every token and a divisor: totals and divisors of
micro-batches add, so that cutting a batch differently changes nothing. Rows
without a single token count nowhere.
"""
import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp

from rlclip import registry
from rlclip.types import Mean

Array = Any

REGISTRY = registry.Registry('reduction')


class Weights(NamedTuple):
  tokens: Array  # float[N, C], 0 where masked
  total: Array  # float[], the divisor


@REGISTRY.register('token_mean')
@dataclasses.dataclass(frozen=True)
class TokenMean:
  """Every token counts the same, so long completions count more.

  L = sum_it l_it / sum_i |y_i|, over the whole batch and not a micro-batch.

  Source: Yu et al., arXiv 2503.14476 (DAPO).
  """

  def __call__(self, mask: Array) -> Weights:
    tokens = _floats(mask)
    return Weights(tokens, jnp.sum(tokens))


@REGISTRY.register('sequence_mean')
@dataclasses.dataclass(frozen=True)
class SequenceMean:
  """Every completion counts the same, so its tokens count as 1 / length.

  L = (1 / N) sum_i (1 / |y_i|) sum_t l_it.

  Source: Shao et al., arXiv 2402.03300 (GRPO).
  """

  def __call__(self, mask: Array) -> Weights:
    tokens = _floats(mask)
    lengths = jnp.sum(tokens, -1, keepdims=True)
    return Weights(tokens / jnp.maximum(lengths, 1.0), _num_rows(mask))


@REGISTRY.register('sequence_sum')
@dataclasses.dataclass(frozen=True)
class SequenceSum:
  """Sums of completions over a constant: no length enters the weight.

  L = (1 / N) sum_i (1 / constant) sum_t l_it.

  Attributes:
    constant: what sums are divided by; None takes C, the completions' padded
      width, which is the token budget unless batches are trimmed.

  Source: Liu et al., arXiv 2503.20783 (Dr.GRPO).
  """
  constant: float | None = None

  def __post_init__(self):
    if self.constant is not None and not 0 < self.constant < math.inf:
      raise ValueError(
          f'SequenceSum needs a finite constant > 0, got {self.constant}. Use '
          f'the longest completion that may be sampled.')

  def __call__(self, mask: Array) -> Weights:
    constant = mask.shape[-1] if self.constant is None else self.constant
    return Weights(_floats(mask) / constant, _num_rows(mask))


@REGISTRY.register('sequence_over_square')
@dataclasses.dataclass(frozen=True)
class SequenceOverSquare:
  """Sums of completions over their length squared: short ones count most.

  L = (1 / N) sum_i (1 / |y_i|^2) sum_t l_it. On a level whose gradient is a
  sum over the sequence's tokens (sequence_product), each token then counts
  as 1 / length, as it does under a sequence mean of token ratios.

  Source: ours; LUSPO (arXiv 2602.05261) goes the other way.
  """

  def __call__(self, mask: Array) -> Weights:
    tokens = _floats(mask)
    lengths = jnp.sum(tokens, -1, keepdims=True)
    return Weights(tokens / jnp.maximum(lengths, 1.0) ** 2, _num_rows(mask))


def mean(values: Array, mask: Array, weights: Weights) -> Mean:
  """The Mean of [N, C] values; what stands at masked places is not read."""
  values = jnp.where(mask, values, 0.0)
  return Mean(jnp.sum(values * weights.tokens), weights.total)


def _num_rows(mask):
  """Rows with a token, float[]."""
  return jnp.sum(_floats(jnp.any(mask, -1)))


def _floats(mask):
  """0 and 1 as float32, or float64 where the oracle has enabled it."""
  return mask.astype(jnp.result_type(float))
