"""Which ratio is held in the trust region: a level maps log-probs to log-probs.

A level is linear in its [N, C] argument, so that the level of a log-ratio is
the log-ratio of the levels. It is applied to log-ratios and to log-probs alike;
masked entries arrive as 0 and leave as 0.

The levels of a sequence come in two: with the gradient of the sequence's number
for every token, and ('..._token') with its value but each token's own gradient.
"""
from typing import Any

import jax
import jax.numpy as jnp

from rlclip import registry

Array = Any

REGISTRY = registry.Registry('level')


@REGISTRY.register('token')
def token(values: Array, mask: Array) -> Array:
  """Each token has its own ratio, w_t.

  Source: Schulman et al., arXiv 1707.06347 (PPO).
  """
  del mask
  return values


@REGISTRY.register('sequence')
def sequence(values: Array, mask: Array) -> Array:
  """All tokens share s = exp(mean_t log w_t), the geometric mean.

  Its gradient is s mean_t grad log p_t. Every token of a row gets the same
  value, so that a sequence mean of token means is the published objective.
  LUSPO (arXiv 2602.05261) is this level times the row's length: the reduction
  'sequence_sum' with the constant 1.

  Source: Zheng et al., arXiv 2507.18071 (GSPO).
  """
  return jnp.where(mask, _mean(values, mask), 0.0)


@REGISTRY.register('sequence_token')
def sequence_token(values: Array, mask: Array) -> Array:
  """Token t has SG(s) p_t / SG(p_t): GSPO's ratio, the token's own gradient.

  With one advantage a row and a sequence mean its gradient is that of GSPO.

  Source: Zheng et al., arXiv 2507.18071 (GSPO-token).
  """
  return _own_gradient(_mean(values, mask), values, mask)


@REGISTRY.register('sequence_product')
def sequence_product(values: Array, mask: Array) -> Array:
  """All tokens share W = exp(sum_t log w_t), the sequence's importance ratio.

  Exact where token ratios are a surrogate, and of a variance that grows with
  the length. Every token of a row gets the same value, with the gradient of
  the sum, so that a sequence mean gives each row's objective once.

  Source: textbook importance sampling.
  """
  return jnp.where(mask, _sum(values, mask), 0.0)


@REGISTRY.register('sequence_product_token')
def sequence_product_token(values: Array, mask: Array) -> Array:
  """Token t has SG(W) p_t / SG(p_t): the product, the token's own gradient.

  As VESPO weighs each token's log p by a function of its sequence's W. Summed
  over a row, its gradient is that of 'sequence_product', once.

  Source: derived here, after GSPO-token; as TRL's VESPO (arXiv 2602.10693).
  """
  return _own_gradient(_sum(values, mask), values, mask)


def get(name: str):
  """The level of this name: (values [N, C], mask [N, C]) -> [N, C]."""
  return REGISTRY[name]


def _mean(values, mask):
  """[N, 1], mean of a row's tokens; 0 for a row without any."""
  lengths = jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1)
  return _sum(values, mask) / lengths.astype(values.dtype)


def _sum(values, mask):
  return jnp.sum(jnp.where(mask, values, 0.0), -1, keepdims=True)


def _own_gradient(of_row, values, mask):
  """The row's value, held, with the gradient of the token's."""
  hold = jax.lax.stop_gradient
  return jnp.where(mask, hold(of_row) + (values - hold(values)), 0.0)
