"""Intervals, gates and levels against the formulas that they stand for."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from rlclip import divergences
from rlclip.losses import LossSpec, SequenceMean
from rlclip.oracle import examples
from rlclip.oracle.certificates import bandit
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.gradients import sample_gradients
from rlclip.oracle.toy import enumerate_sequences
from rlclip.trust_region import bounds, gates

_NUM = 20_000
_PPO = ('gate:pessimistic_min', 'bounds:fixed')
_PPO_RULES = ('algorithm:grpo', 'algorithm:dr_grpo', 'algorithm:dapo')


@register('mask_is_derivative_of_min', covers=(
    *_PPO, *_PPO_RULES, 'bounds:from_divergence', 'algorithm:atr_grpo'))
def mask_is_derivative_of_min(seed: int) -> float:
  """The mask blocked = outside and A (w - 1) > 0 is the derivative of min."""
  def minimum(w, clipped, a):
    return jnp.minimum(w * a, clipped * a)
  return max(_objective_error(seed, gates.PessimisticMin(), region, minimum)
             for region in (bounds.Fixed(0.2, 0.2), bounds.Fixed(0.2, 0.28),
                            bounds.FromDivergence('forward_kl', 0.02)))


@register('dual_clip_is_max_of_min', covers=(
    'gate:dual_clip', 'algorithm:dual_clip_ppo', 'algorithm:intellect_2'))
def dual_clip_is_max_of_min(seed: int) -> float:
  """Dual clip is the derivative of max(min(w A, clip(w) A), cap A), A < 0.

  And the two-sided min(min(w, cap) A, clip(w) A) has the same.
  """
  def dual(w, clipped, a):
    least = jnp.minimum(w * a, clipped * a)
    return jnp.where(a < 0, jnp.maximum(least, 3.0 * a), least)

  def two_sided(w, clipped, a):
    return jnp.minimum(jnp.minimum(w, 3.0) * a, clipped * a)

  return max(_objective_error(
      seed, gates.DualClip(3.0), bounds.Fixed(0.2, 0.28), j, scale=1.0)
      for j in (dual, two_sided))


@register('unconditional_is_derivative_of_clip', covers=(
    'gate:unconditional', 'bounds:fixed_by_sign', 'algorithm:abc_grpo'))
def unconditional_is_derivative_of_clip(seed: int) -> float:
  """Without the min, the derivative is that of clip(w) A."""
  return _objective_error(seed, gates.Unconditional(), bounds.Fixed(0.2, 0.28),
                          lambda w, clipped, a: clipped * a)


@register('divergence_mask_is_interval',
          covers=('bounds:from_divergence',),
          subjects=lambda: examples.keys('divergence'))
def divergence_mask_is_interval(seed: int, keys) -> dict[str, float]:
  """f(w) within the budget blocks the same tokens as low <= w <= high."""
  return {key: _mask_error(seed, key.partition(':')[2]) for key in keys}


@register('kl3_interval_is_its_ratio_clip', covers=(
    'divergence:forward_kl', 'bounds:from_divergence', 'algorithm:atr_grpo'))
def kl3_interval_is_its_ratio_clip(seed: int) -> float:
  """KL3 within delta is PPO's clip at two branches of Lambert's W.

  low, high = -W0(-exp(-1 - delta)), -W_{-1}(-exp(-1 - delta)).
  """
  def lambert(delta):
    at = -math.exp(-1 - delta)
    low, high = (float(-special.lambertw(at, k).real) for k in (0, -1))
    return bounds.Fixed(1 - low, high - 1)
  return max(_same_rule_error(
      seed, bounds.FromDivergence('forward_kl', delta), lambert(delta))
      for delta in (0.001, 0.02, 0.03314, 0.5))


@register('pearson_and_total_variation_are_ppo', covers=(
    *_PPO, *_PPO_RULES, 'divergence:pearson', 'divergence:total_variation'))
def pearson_and_total_variation_are_ppo(seed: int) -> float:
  """Pearson within eps^2 / 2 and TV within eps / 2 are PPO's clip at eps."""
  return max(_same_rule_error(
      seed, bounds.FromDivergence(name, delta), bounds.Fixed(eps, eps))
      for eps in (0.1, 0.2, 0.5)
      for name, delta in (('pearson', eps ** 2 / 2),
                          ('total_variation', eps / 2)))


@register('levels_agree_on_single_tokens',
          subjects=lambda: examples.keys('level'))
def levels_agree_on_single_tokens(seed: int, keys) -> dict[str, float]:
  """Where sequences have one token, every level is the token's."""
  b = bandit.make(seed)
  specs = [LossSpec(bounds=bounds.Fixed(0.2, 0.2), level=level)
           for level in ('token', *(key.partition(':')[2] for key in keys))]
  token, *others = sample_gradients(
      b.toy, specs, b.new, b.old, advantages=b.rewards)
  return {key: distance(other.logits, token.logits)
          for key, other in zip(keys, others)}


@register('gspo_token_is_gspo', covers=(
    'level:sequence', 'level:sequence_token', 'algorithm:gspo',
    'algorithm:gspo_token'))
def gspo_token_is_gspo(seed: int) -> float:
  """With one advantage a sequence GSPO-token has the gradient of GSPO."""
  toy = enumerate_sequences(3, 3, stop=2)
  rng = np.random.default_rng(seed)
  old = rng.normal(size=(toy.num_rows, 3))
  new = old + rng.normal(0, 0.3, old.shape)
  rewards = rng.normal(size=len(toy.tokens))
  samples = sample_gradients(toy, [
      LossSpec(bounds=bounds.Fixed(0.1, 0.1), level=level,
               reduction=SequenceMean())
      for level in ('sequence_token', 'sequence')],
      new, old, advantages=rewards)
  return distance(*(s.expected(toy) for s in samples))


def gate_error(gate, region, log_ratio, advantages, reference,
               penalty=None) -> float:
  """Largest difference of a gate's gradients from those of a reference.

  Args:
    gate: from trust_region.gates.
    region: from trust_region.bounds, one that reads no inputs.
    log_ratio: [N], log w; log p is the same.
    advantages: [N].
    reference: [N] -> [N], losses of log-ratios.
    penalty: a Penalty inside the advantage, or None.

  Returns:
    The error, in float64.
  """
  with jax.enable_x64(True):
    d = jnp.asarray(log_ratio)
    got = _gradient(gate, region, d, advantages, penalty)
    return distance(got, jax.grad(lambda d: jnp.sum(reference(d)))(d))


def _gradient(gate, region, d, advantages, penalty=None):
  def loss(d):
    return jnp.sum(gate(gates.GateInputs(
        d, d, advantages, 0.0 if penalty is None else penalty.inside(d),
        region(None), jnp.ones(d.shape, bool))).loss)
  return jax.grad(loss)(d)


def _mask_error(seed, name):
  log_ratio, advantages = _draw(seed)
  region = bounds.FromDivergence(name, 0.02)
  divergence = divergences.get(name)

  def masked(d):
    outside = divergence.generator(d) > divergence.budget(0.02)
    blocked = outside & (advantages * d > 0)
    return -jnp.where(blocked, 1.0, jnp.exp(d)) * advantages

  return gate_error(
      gates.PessimisticMin(), region, log_ratio, advantages, masked)


def _objective_error(seed, gate, region, objective, scale=0.4):
  """Against minus the derivative of a function (w, clip(w), A)."""
  log_ratio, advantages = _draw(seed, scale)
  low, high = region.interval()

  def reference(d):
    w = jnp.exp(d)
    return -objective(w, jnp.clip(w, low, high), advantages)

  return gate_error(gate, region, log_ratio, advantages, reference)


def _same_rule_error(seed, one, other):
  """Difference of two ways to draw bounds, by ends and by gradients."""
  log_ratio, advantages = _draw(seed)
  with jax.enable_x64(True):
    gradients = [_gradient(gates.PessimisticMin(), region,
                           jnp.asarray(log_ratio), advantages)
                 for region in (one, other)]
  return max(distance(one.interval(), other.interval()),
             distance(*gradients))


def _draw(seed, scale=0.4):
  """Log-ratios and advantages."""
  rng = np.random.default_rng(seed)
  return rng.normal(0, scale, _NUM), rng.normal(0, 1, _NUM)
