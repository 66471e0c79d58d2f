"""Divergences built on powers of the ratio: the Cressie-Read family."""
import dataclasses
import math

import jax.numpy as jnp

from rlclip.divergences import kullback_leibler
from rlclip.divergences.divergence import Divergence, register

# Beyond this w^order leaves float32 inside the limits of the log-ratio.
_LARGEST_ORDER = 4.0


@register('alpha', 'cressie_read')
def alpha(order: float = 0.5) -> Divergence:
  """Cressie-Read's family: one number moves the skew of the interval.

  f(w) = (w^a - a w - (1 - a)) / (a (a - 1)), a = order;
  w f'(w) = (w^a - w) / (a - 1);  f'''(1) = a - 2.
  a = -1 Neyman, 0 forward KL, 1/2 Hellinger, 1 reverse KL, 2 Pearson. Amari's
  alpha is 1 - 2 a. low is 0 from delta = 1/a on where a > 0.

  Args:
    order: a in [-4, 4]; not within 0.001 of 0 or 1 unless equal.

  Raises:
    ValueError: for an order outside of that.

  Source: Cressie and Read, 1984; normalization ours.
  """
  if not -_LARGEST_ORDER <= order <= _LARGEST_ORDER:
    raise ValueError(
        f'alpha needs an order in [-4, 4], where w^order stays in float32, '
        f'got {order}.')
  if order == 0:
    return kullback_leibler.forward_kl()
  if order == 1:
    return kullback_leibler.reverse_kl()
  if min(abs(order), abs(order - 1)) < 1e-3:
    raise ValueError(
        f'alpha of order {order} loses all digits to cancellation. Use 0 '
        f'(forward KL) or 1 (reverse KL) exactly, or keep 0.001 away.')
  scale = order * (order - 1)
  return Divergence(
      generator=lambda d: (jnp.expm1(order * d) - order * jnp.expm1(d)) / scale,
      slope=lambda d: jnp.expm1((order - 1) * d) / (order - 1),
      exact=lambda log_p, log_q: (jnp.sum(
          jnp.exp(order * log_p + (1 - order) * log_q), axis=-1) - 1) / scale)


@register('renyi')
def renyi(order: float = 0.5) -> Divergence:
  """Renyi's divergence over its order: a function of the alpha family's.

  R(new || old) = log(sum p^a q^(1-a)) / (a (a - 1)) = log1p(a (a - 1) D_a) /
  (a (a - 1)), a = order, D_a the alpha family's divergence. Dividing the
  textbook's log(...) / (a - 1) by a gives it the curvature of all others here,
  so a textbook delta is a times this delta.
  It is no mean of a per-sample f. R <= delta is D_a <= budget(delta) =
  expm1(a (a - 1) delta) / (a (a - 1)), whence its interval, which is the alpha
  family's at that budget; so is its generator. For 0 < a < 1 that budget stays
  under 1 / (a (1 - a)), so high stays finite however large delta is.

  Args:
    order: a, as for alpha; 0 is the forward KL and 1 the reverse KL.

  Raises:
    ValueError: for an order that alpha does not take.

  Source: Renyi, 1961; normalization ours, interval derived and checked.
  """
  family, scale = alpha(order), order * (order - 1)
  if scale == 0:
    return family
  return dataclasses.replace(
      family,
      exact=lambda log_p, log_q: (
          jnp.log1p(scale * family.exact(log_p, log_q)) / scale),
      budget=lambda delta: jnp.expm1(scale * delta) / scale,
      per_sample=False)


@register('pearson', 'chi2')
def pearson() -> Divergence:
  """Half of chi2(new || old); its interval is PPO's, eps = sqrt(2 delta).

  f(w) = (w - 1)^2 / 2;  w f'(w) = w (w - 1);  f'''(1) = 0.
  low, high = 1 -+ sqrt(2 delta), low 0 from delta = 1/2 on.

  Source: Pearson, 1900; normalization ours.
  """
  def ends(delta):
    width = math.sqrt(2 * delta)
    return max(1 - width, 0.0), 1 + width

  return Divergence(
      generator=lambda d: 0.5 * jnp.expm1(d) ** 2,
      slope=jnp.expm1,
      exact=lambda log_p, log_q: 0.5 * jnp.sum(
          jnp.exp(log_q) * jnp.expm1(log_p - log_q) ** 2, axis=-1),
      ends=ends)


@register('neyman')
def neyman() -> Divergence:
  """Half of chi2(old || new), symmetric in log w up to the factor w.

  f(w) = (w - 1)^2 / (2 w);  w f'(w) = (w - 1/w) / 2;  f'''(1) = -3.
  low, high = 1 + delta -+ sqrt(delta^2 + 2 delta); low high = 1.

  Source: Neyman, 1949; normalization ours.
  """
  def ends(delta):
    high = 1 + delta + math.sqrt(delta * (delta + 2))
    # 1 / high, as the difference cancels for a large delta.
    return 1 / high, high

  return Divergence(
      generator=lambda d: 2 * jnp.sinh(0.5 * d) ** 2,
      slope=lambda d: -0.5 * jnp.expm1(-2 * d),
      exact=lambda log_p, log_q: 0.5 * jnp.sum(
          jnp.exp(log_p) * jnp.expm1(log_q - log_p) ** 2, axis=-1),
      ends=ends)


@register('hellinger')
def hellinger() -> Divergence:
  """Four times the squared Hellinger distance, H^2 = sum (sqrt p - sqrt q)^2/2.

  f(w) = 2 (sqrt w - 1)^2;  w f'(w) = 2 (w - sqrt w);  f'''(1) = -3/2.
  low, high = (1 -+ sqrt(delta / 2))^2, low 0 from delta = 2 on.

  Source: Hellinger, 1909; normalization ours.
  """
  def ends(delta):
    width = math.sqrt(delta / 2)
    return max(1 - width, 0.0) ** 2, (1 + width) ** 2

  return Divergence(
      generator=lambda d: 2 * jnp.expm1(0.5 * d) ** 2,
      slope=lambda d: -2 * jnp.expm1(-0.5 * d),
      exact=lambda log_p, log_q: 2 * jnp.sum(
          (jnp.exp(0.5 * log_p) - jnp.exp(0.5 * log_q)) ** 2, axis=-1),
      ends=ends)
