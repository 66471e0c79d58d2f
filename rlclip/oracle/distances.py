"""Divergences between tabular policies: by position, and of whole sequences."""
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences
from rlclip.oracle.toy import Toy

Array = Any


def token_divergence(measure: str, logits: Array, other_logits: Array, *,
                     top_k: int = 0) -> np.ndarray:
  """D(p(. | prefix) || q(. | prefix)) over the vocabulary, for every prefix.

  Args:
    measure: a divergence of rlclip.divergences.
    logits: float[R, V], of p.
    other_logits: float[R, V], of q.
    top_k: 0 for all of the vocabulary; else q's K likeliest tokens, each its
      own bin, and one bin for the rest.

  Returns:
    float64[R].
  """
  with jax.enable_x64(True):
    return np.asarray(by_position(
        measure, jnp.asarray(logits, jnp.float64),
        jnp.asarray(other_logits, jnp.float64), top_k))


def sequence_divergence(toy: Toy, measure: str, logits: Array,
                        other_logits: Array) -> float:
  """D(p || q) of whole sequences, the mean over contexts.

  The KLs are sums of their tokens' divergences over prefixes drawn from the
  second argument of log (forward: from q, reverse: from p); others are not.

  Args:
    toy: the sequences.
    measure: a divergence of rlclip.divergences.
    logits: float[R, V], of p.
    other_logits: float[R, V], of q.

  Returns:
    The divergence, in units of its generator.
  """
  with jax.enable_x64(True):
    return float(of_sequences(toy, measure, *(
        jnp.asarray(x, jnp.float64) for x in (logits, other_logits))))


def of_sequences(toy: Toy, measure: str, logits: Array,
                 other_logits: Array) -> Array:
  """As sequence_divergence, differentiable."""
  # Sequences stand by context, as many for each.
  by_context = lambda x: jnp.sum(toy.logps(x), -1).reshape(toy.num_contexts, -1)
  return jnp.mean(divergences.get(measure).exact(
      by_context(logits), by_context(other_logits)))


def by_position(measure: str, logits: Array, other_logits: Array,
                top_k: int = 0) -> Array:
  """As token_divergence, differentiable, for logits [..., V]."""
  log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(other_logits)
  if 0 < top_k < log_q.shape[-1]:
    order = jnp.argsort(-log_q, axis=-1)

    def bins(logps):
      logps = jnp.take_along_axis(logps, order, -1)
      rest = jax.nn.logsumexp(logps[..., top_k:], axis=-1, keepdims=True)
      return jnp.concatenate([logps[..., :top_k], rest], -1)

    log_p, log_q = bins(log_p), bins(log_q)
  return divergences.get(measure).exact(log_p, log_q)


def entropy(logits: Array) -> Array:
  """-sum p log p in nats, for logits [..., V]; differentiable."""
  logps = jax.nn.log_softmax(logits)
  return -jnp.sum(jnp.exp(logps) * logps, -1)
