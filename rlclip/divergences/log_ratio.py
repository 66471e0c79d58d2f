"""Measures of log w alone; intervals as the rest, though no f-divergences.

Their generators are not convex for large w, so E_old[f(w)] is no divergence
between distributions: it says how far single tokens moved.
"""
import jax.numpy as jnp
import numpy as np

from rlclip.divergences.divergence import Divergence, register


@register('squared_log_ratio', 'k2')
def squared_log_ratio() -> Divergence:
  """Half the squared log-ratio, Schulman's k2.

  f(w) = log(w)^2 / 2;  w f'(w) = log w;  f'''(1) = -3.
  low, high = exp(-+ sqrt(2 delta)); low high = 1.

  Source: Schulman, "Approximating KL Divergence", 2020.
  """
  return Divergence(
      generator=lambda d: 0.5 * d ** 2,
      slope=lambda d: d * jnp.exp(-d),
      ends=lambda delta: (np.exp(-np.sqrt(2 * delta)),
                          np.exp(np.sqrt(2 * delta))))


@register('absolute_log_ratio', 'abslog')
def absolute_log_ratio() -> Divergence:
  """The absolute log-ratio, in nats; f''(1) does not exist.

  f(w) = |log w|;  w f'(w) = sign(log w).
  low, high = exp(-+ delta); low high = 1.

  Source: textbook; as a constraint derived, not published.
  """
  return Divergence(
      generator=jnp.abs,
      slope=lambda d: jnp.sign(d) * jnp.exp(-d),
      ends=lambda delta: (np.exp(-delta), np.exp(delta)),
      power=1)
