"""Divergences that stay bounded between any two distributions."""
import jax
import jax.numpy as jnp

from rlclip.divergences.divergence import Divergence, register


@register('total_variation', 'tv')
def total_variation() -> Divergence:
  """Half the L1 distance; its interval is PPO's, eps = 2 delta.

  f(w) = |w - 1| / 2;  w f'(w) = w sign(w - 1) / 2;  f''(1) does not exist, so
  its delta is on a scale of its own.
  low, high = 1 -+ 2 delta, low 0 from delta = 1/2 on.

  Source: textbook; between the token and the rest as a trust region in
  arXiv 2602.04879 (DPPO).
  """
  return Divergence(
      generator=lambda d: 0.5 * jnp.abs(jnp.expm1(d)),
      slope=lambda d: 0.5 * jnp.sign(d),
      exact=lambda log_p, log_q: 0.5 * jnp.sum(
          jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)), axis=-1),
      ends=lambda delta: (max(1 - 2 * delta, 0.0), 1 + 2 * delta),
      power=1)


@register('jensen_shannon', 'js')
def jensen_shannon() -> Divergence:
  """Four times the Jensen-Shannon divergence, m = (p + q) / 2.

  f(w) = 2 (w log w - (1 + w) log((1 + w) / 2)) = 2 (w L(w) + L(1 / w)),
  L(w) = log(2 w / (1 + w));  w f'(w) = 2 w L(w);  f'''(1) = -3/2.
  The interval has no closed form; low is 0 from delta = 2 log 2 on.

  Source: Lin, 1991; normalization ours.
  """
  def exact(log_p, log_q):
    d = log_p - log_q
    return 2 * jnp.sum(
        jnp.exp(log_p) * _log_share(d) + jnp.exp(log_q) * _log_share(-d),
        axis=-1)

  return Divergence(
      generator=lambda d: 2 * (jnp.exp(d) * _log_share(d) + _log_share(-d)),
      slope=lambda d: 2 * _log_share(d),
      exact=exact)


def _log_share(d):
  """log(2 w / (1 + w)), exact to the last digits near and far below w = 1."""
  # 2 w / (1 + w) = 1 + tanh(d / 2), which far below 1 rounds to 0.
  near = jnp.log1p(jnp.tanh(0.5 * jnp.maximum(d, -1.0)))
  return jnp.where(d > -1.0, near, d + jnp.log(2.0) - jax.nn.softplus(d))
