"""Differences of log-probs, kept inside float32 without hiding it."""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = Any

# Every generator, slope and weight is finite in float32 at exp(+-20).
LIMIT = 20.0


class LogRatio(NamedTuple):
  value: Array  # at most LIMIT in size
  limited: Array  # bool, where it would have been larger


def limit(log_ratio: Array) -> LogRatio:
  """Limits a log-ratio to +-LIMIT, with the gradient of the limit's value.

  Clamping would make the gradient zero exactly where the policy is farthest
  away. Here it is what the rule has at the limit, so it still pushes back.

  Args:
    log_ratio: [...], nats; masked entries are 0 already.

  Returns:
    The LogRatio; its value differentiates as `log_ratio` does.
  """
  limited = jnp.abs(log_ratio) > LIMIT
  excess = jnp.where(
      limited, log_ratio - jnp.sign(log_ratio) * LIMIT, 0.0)
  # An infinite log-ratio has no finite excess: take the limit itself.
  infinite = jnp.isinf(log_ratio)
  finite = jnp.where(infinite, 0.0, log_ratio)
  excess = jnp.where(infinite, -jnp.sign(log_ratio) * LIMIT, excess)
  return LogRatio(finite - jax.lax.stop_gradient(excess), limited)
