"""The two Kullback-Leibler divergences and their mean."""
import math

import jax.numpy as jnp
from scipy import special

from rlclip.divergences.divergence import Divergence, register


@register('forward_kl', 'kl3')
def forward_kl() -> Divergence:
  """KL(old || new), the direction of TRPO and of ATR-GRPO's KL3 constraint.

  f(w) = w - 1 - log w;  w f'(w) = w - 1;  f'''(1) = -2.
  low = -W0(-exp(-1 - delta)), high = -W_{-1}(-exp(-1 - delta)), W Lambert's.
  Sampled from old, its token-wise penalty sums exactly to the KL of whole
  sequences. As a penalty it covers modes; RPG calls it UFKL. The direction is
  named here after RPG; papers use "forward" for either.

  Source: Schulman, "Approximating KL Divergence", 2020 (k3); Wu et al.,
  arXiv 2602.05494 (as a constraint); interval derived and checked.
  """
  def ends(delta):
    point = -math.exp(-1.0 - delta)
    return -special.lambertw(point).real, -special.lambertw(point, -1).real

  return Divergence(
      generator=lambda d: jnp.expm1(d) - d,
      slope=lambda d: -jnp.expm1(-d),
      exact=lambda log_p, log_q: _relative_entropy(log_q, log_p),
      ends=ends)


@register('reverse_kl', 'rkl3')
def reverse_kl() -> Divergence:
  """KL(new || old), the direction of GAPO's constraint and of RPG's URKL.

  f(w) = w log w - w + 1;  w f'(w) = w log w;  f'''(1) = -1.
  low = exp(1 + W_{-1}((delta - 1) / e)), 0 from delta = 1 on;
  high = exp(1 + W0((delta - 1) / e)), W Lambert's.
  Token by token and sampled from old it ignores the change of the prefixes: a
  first-order surrogate of the KL of whole sequences.

  Source: Zhang et al., arXiv 2505.17508 (URKL); interval derived and checked.
  """
  def ends(delta):
    point = (delta - 1.0) / math.e
    low = (math.exp(1.0 + special.lambertw(point, -1).real)
           if delta < 1 else 0.0)
    return low, math.exp(1.0 + special.lambertw(point).real)

  return Divergence(
      generator=lambda d: d * jnp.exp(d) - jnp.expm1(d),
      slope=lambda d: d,
      exact=_relative_entropy,
      ends=ends)


@register('jeffreys')
def jeffreys() -> Divergence:
  """The mean of both KLs (half of Jeffreys' sum).

  f(w) = (w - 1) log(w) / 2;  w f'(w) = (w log w + w - 1) / 2;
  f'''(1) = -3/2. The interval has no closed form.

  Source: Jeffreys, 1946; normalization ours.
  """
  return Divergence(
      generator=lambda d: 0.5 * d * jnp.expm1(d),
      slope=lambda d: 0.5 * (d - jnp.expm1(-d)),
      exact=lambda log_p, log_q: 0.5 * jnp.sum(
          (jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q), axis=-1))


def _relative_entropy(log_p, log_q):
  """sum p log(p / q) over the last axis."""
  return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
