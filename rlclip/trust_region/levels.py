"""Which ratio is held in the trust region: a level maps log-probs to log-probs.

A level is linear in its [N, C] argument, so that the level of a log-ratio is
the log-ratio of the levels. Masked entries arrive as 0.
"""
from typing import Any

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

  Source: Zheng et al., arXiv 2507.18071 (GSPO).
  """
  lengths = jnp.maximum(jnp.sum(mask, -1, keepdims=True), 1)
  means = jnp.sum(values, -1, keepdims=True) / lengths.astype(values.dtype)
  return jnp.where(mask, means, 0.0)


def get(name: str):
  """The level of this name: (values [N, C], mask [N, C]) -> [N, C]."""
  return REGISTRY[name]
