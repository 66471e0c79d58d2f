"""Losses of other libraries, written independently, against ours."""
import importlib

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import LossSpec, rule, TokenMean
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.trust_region import bounds


@register('rlax_clipped_surrogate_is_ours', requires='rlax', covers=(
    'gate:pessimistic_min', 'bounds:fixed', 'level:token', 'algorithm:grpo',
    'algorithm:dr_grpo'))
def rlax_clipped_surrogate_is_ours(seed: int) -> float:
  """rlax.clipped_surrogate_pg_loss has the value and the gradient of PPO's."""
  rlax = importlib.import_module('rlax')
  rng = np.random.default_rng(seed)
  spec = LossSpec(bounds=bounds.Fixed(0.2, 0.2), reduction=TokenMean())
  with jax.enable_x64(True):
    d, advantages = jnp.asarray(rng.normal(0, 0.4, (2, 20_000)))

    def ours(d):
      zero = jnp.zeros((d.size, 1))
      return jnp.mean(rule.per_token(spec, rule.RuleInputs(
          d[:, None], zero, None, None, zero == 0, advantages)).loss)

    def theirs(d):
      return rlax.clipped_surrogate_pg_loss(jnp.exp(d), advantages, 0.2)

    pairs = [jax.value_and_grad(f)(d) for f in (ours, theirs)]
  return max(distance(a, b) for a, b in zip(*pairs))
