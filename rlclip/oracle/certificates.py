"""Named identities that the rules must satisfy, each a function to an error.

Every certificate draws its own policies from a seed and returns the largest
absolute deviation, about 1e-16 where the identity holds. `check` runs one.
"""
from typing import Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences, registry
from rlclip.losses import LossSpec, Penalty, TokenMean
from rlclip.oracle.gradients import (exact_gradient, expected_gradient,
                                     token_penalty_gradient)
from rlclip.oracle.toy import enumerate_sequences
from rlclip.trust_region import bounds, gates

REGISTRY = registry.Registry('certificate')
TOLERANCE = 1e-12
BETA = 0.37

# RPG's four divergences: name, measure, control variate.
RPG = (('fkl', 'forward_kl', -1.0), ('ufkl', 'forward_kl', 0.0),
       ('rkl', 'reverse_kl', 1.0), ('urkl', 'reverse_kl', 0.0))


class Bandit(NamedTuple):
  """Nine actions in each of two contexts, and three policies."""
  toy: object
  new: np.ndarray
  old: np.ndarray
  reference: np.ndarray
  rewards: np.ndarray


def check(name: str, seed: int = 0) -> float:
  """The error of one certificate; at most TOLERANCE where it holds."""
  return REGISTRY[name](seed)


def names() -> tuple[str, ...]:
  return REGISTRY.names()


def documentation(name: str) -> str:
  """What a certificate says."""
  return (REGISTRY[name].__doc__ or '').strip()


@REGISTRY.register('rpg_pathwise_is_exact')
def rpg_pathwise_is_exact(seed: int) -> float:
  """Unclipped, RPG's differentiable losses have the gradient of E[R] - beta D.
  """
  return _rpg_error(seed, 'pathwise', 'beside', RPG, 1.0)


@REGISTRY.register('rpg_score_is_exact')
def rpg_score_is_exact(seed: int) -> float:
  """So do its REINFORCE-style losses, with the penalty inside the advantage."""
  return _rpg_error(seed, 'score', 'inside', RPG, 1.0)


@REGISTRY.register('rpg_inside_pathwise_is_exact')
def rpg_inside_pathwise_is_exact(seed: int) -> float:
  """So does Algorithm 1 with the reverse KL, gradient through the advantage."""
  return _rpg_error(seed, 'pathwise', 'inside', RPG[2:], 1.0)


@REGISTRY.register('rpg_unnormalized_is_exact')
def rpg_unnormalized_is_exact(seed: int) -> float:
  """UFKL and URKL hold for a sampler of mass 1.7 (times that mass)."""
  unnormalized = (RPG[1], RPG[3])
  return max(_rpg_error(seed, 'pathwise', 'beside', unnormalized, 1.7),
             _rpg_error(seed, 'score', 'inside', unnormalized, 1.7))


@REGISTRY.register('weighted_k3_is_reverse_kl')
def weighted_k3_is_reverse_kl(seed: int) -> float:
  """w k3(ref / p), gradient through w, has the gradient of KL(p || ref)."""
  b = _bandit(seed)
  got = _penalty_gradient(b, 'pathwise')
  score = _penalty_gradient(b, 'score')
  exact = -exact_gradient(b.toy, b.new, rewards=0 * b.rewards, beta=1.0,
                          measure='reverse_kl', target_logits=b.reference)

  def weighted(theta, old, reference, probabilities):
    p, q, r = b.toy.logps(theta), b.toy.logps(old), b.toy.logps(reference)
    k3 = jnp.exp(r - p) - 1 - (r - p)
    return jnp.sum(probabilities * (jnp.exp(p - q) * k3)[:, 0])

  by_hand = _differentiate(b, weighted)
  return max(_distance(x, exact) for x in (got, score, by_hand))


@REGISTRY.register('held_weight_k3_is_the_other_kl')
def held_weight_k3_is_the_other_kl(seed: int) -> float:
  """SG(w) k3(ref / p) has the gradient of KL(ref || p) instead."""
  b = _bandit(seed)

  def held(theta, old, reference, probabilities):
    p, q, r = b.toy.logps(theta), b.toy.logps(old), b.toy.logps(reference)
    k3 = jnp.exp(r - p) - 1 - (r - p)
    weight = jax.lax.stop_gradient(jnp.exp(p - q))
    return jnp.sum(probabilities * (weight * k3)[:, 0])

  exact = -exact_gradient(b.toy, b.new, rewards=0 * b.rewards, beta=1.0,
                          measure='forward_kl', target_logits=b.reference)
  return _distance(_differentiate(b, held), exact)


@REGISTRY.register('k1_on_policy_is_zero')
def k1_on_policy_is_zero(seed: int) -> float:
  """log(p / ref) as a loss has expected gradient 0 on policy."""
  b = _bandit(seed)
  return float(np.abs(_penalty_gradient(
      b._replace(old=b.new), 'unweighted_k1')).max())


@REGISTRY.register('k2_on_policy_is_reverse_kl')
def k2_on_policy_is_reverse_kl(seed: int) -> float:
  """log(p / ref)^2 / 2 has the gradient of KL(p || ref) on policy."""
  b = _bandit(seed)
  exact = -exact_gradient(b.toy, b.new, rewards=0 * b.rewards, beta=1.0,
                          measure='reverse_kl', target_logits=b.reference)
  return _distance(
      _penalty_gradient(b._replace(old=b.new), 'unweighted_k2'), exact)


@REGISTRY.register('unweighted_k3_is_the_other_kl')
def unweighted_k3_is_the_other_kl(seed: int) -> float:
  """GRPO's k3 has the gradient of KL(ref || p) on policy, not KL(p || ref)."""
  b = _bandit(seed)
  exact = -exact_gradient(b.toy, b.new, rewards=0 * b.rewards, beta=1.0,
                          measure='forward_kl', target_logits=b.reference)
  return _distance(
      _penalty_gradient(b._replace(old=b.new), 'unweighted_k3'), exact)


@REGISTRY.register('token_forward_kl_is_sequence_kl')
def token_forward_kl_is_sequence_kl(seed: int) -> float:
  """Summed over tokens, the forward KL is that of whole sequences."""
  return token_penalty_error('forward_kl', seed)


@REGISTRY.register('mask_is_derivative_of_min')
def mask_is_derivative_of_min(seed: int) -> float:
  """The mask blocked = outside and A (w - 1) > 0 is the derivative of min."""
  rng = np.random.default_rng(seed)
  log_ratio = rng.normal(0, 0.4, 20_000)
  advantages = rng.normal(0, 1, 20_000)
  error = 0.0
  for region in (bounds.Fixed(0.2, 0.2), bounds.Fixed(0.2, 0.28),
                 bounds.FromDivergence('forward_kl', 0.02)):
    low, high = region.interval()

    def minimum(d):
      w = jnp.exp(d)
      return -jnp.minimum(w * advantages, jnp.clip(w, low, high) * advantages)

    error = max(error, _gate_error(
        gates.PessimisticMin(), region, log_ratio, advantages, minimum))
  return error


@REGISTRY.register('divergence_mask_is_interval')
def divergence_mask_is_interval(seed: int) -> float:
  """f(w) <= delta blocks the same tokens as low <= w <= high, for every f."""
  rng = np.random.default_rng(seed)
  log_ratio = rng.normal(0, 0.4, 20_000)
  advantages = rng.normal(0, 1, 20_000)
  error = 0.0
  for name in divergences.names():
    divergence = divergences.get(name)

    def masked(d):
      outside = divergence.generator(d) > divergence.budget(0.02)
      blocked = outside & (advantages * d > 0)
      return -jnp.where(blocked, 1.0, jnp.exp(d)) * advantages

    error = max(error, _gate_error(
        gates.PessimisticMin(), bounds.FromDivergence(name, 0.02), log_ratio,
        advantages, masked))
  return error


@REGISTRY.register('section_3_3_is_algorithm_2')
def section_3_3_is_algorithm_2(seed: int) -> float:
  """RPG's section 3.3 with SG(A') has the gradient of its Algorithm 2."""
  rng = np.random.default_rng(seed)
  log_ratio = rng.normal(0, 1.0, 20_000)
  advantages = rng.normal(0, 1, 20_000)
  region, error = bounds.Fixed(0.2, 0.28), 0.0
  for _, measure, control_variate in RPG:
    penalty = Penalty(measure, BETA, toward='anchor', estimator='score',
                      placement='inside', control_variate=control_variate)
    reference = lambda d: algorithm_2(
        d, d, advantages, BETA * _minus_weight(measure, control_variate, d))
    for form in ('surrogate', 'score'):
      error = max(error, _gate_error(
          gates.DualClip(3.0, form), region, log_ratio, advantages, reference,
          penalty))
  return error


def token_penalty_error(measure: str, seed: int) -> float:
  """Distance of the token-wise penalty's gradient from the sequences' one."""
  toy = enumerate_sequences(3, 3, stop=2)
  rng = np.random.default_rng(seed)
  new, old = rng.normal(size=(2, toy.num_rows, toy.num_tokens))
  spec = LossSpec(penalty=Penalty(measure, 1.0, toward='anchor'))
  exact = -exact_gradient(toy, new, rewards=np.zeros(len(toy.tokens)),
                          measure=measure, beta=1.0, target_logits=old)
  return _distance(token_penalty_gradient(toy, spec, new, old), exact)


def algorithm_2(log_ratio, logps, advantages, signed_penalty, *,
                eps_low: float = 0.2, eps_high: float = 0.28,
                cap: float = 3.0):
  """Algorithm 2 of RPG word by word: the loss of each sample.

  Args:
    log_ratio: [...], log w.
    logps: [...], log pi.
    advantages: [...], R - b.
    signed_penalty: [...], C_KL, the KL's part of the weight, sign and beta in.
    eps_low: eps1.
    eps_high: eps2.
    cap: c.

  Returns:
    [...], losses.

  Source: Zhang et al., arXiv 2505.17508, Algorithm 2.
  """
  hold = jax.lax.stop_gradient
  w, loss = hold(jnp.exp(log_ratio)), -logps
  part = hold(signed_penalty)
  psi = (advantages + part / w) * loss
  positive = jnp.where(
      w < 1 + eps_high, psi * w,
      (advantages + part / (1 + eps_high)) * hold(loss) * (1 + eps_high))
  negative = jnp.where(
      w <= 1 - eps_low,
      (advantages + part / (1 - eps_low)) * hold(loss) * (1 - eps_low),
      jnp.where(w < cap, psi * w,
                advantages * hold(loss) * cap + part * hold(loss)))
  return jnp.where(advantages + part / w >= 0, positive, negative)


def _minus_weight(measure, control_variate, log_ratio):
  """-(w f'(w) + c w), C_KL over beta, from the formulas of the paper."""
  w = jnp.exp(log_ratio)
  weight = w - 1 if measure == 'forward_kl' else w * log_ratio
  return -(weight + control_variate * w)


def _gate_error(gate, region, log_ratio, advantages, reference, penalty=None):
  """Largest difference of a gate's gradients from those of a reference."""
  with jax.enable_x64(True):
    d = jnp.asarray(log_ratio)

    def loss(d):
      x = gates.GateInputs(
          d, d, advantages, 0.0 if penalty is None else penalty.inside(d),
          region(None), jnp.ones(d.shape, bool))
      return jnp.sum(gate(x).loss)

    got = jax.grad(loss)(d)
    return _distance(got, jax.grad(lambda d: jnp.sum(reference(d)))(d))


def _rpg_error(seed, estimator, placement, variants, mass):
  """Largest error among RPG's losses of one form, with and without baseline."""
  b, error = _bandit(seed), 0.0
  for _, measure, control_variate in variants:
    spec = LossSpec(
        bounds=None, gate=gates.Unclipped(), reduction=TokenMean(),
        penalty=Penalty(measure, BETA, toward='anchor', estimator=estimator,
                        placement=placement, control_variate=control_variate))
    exact = exact_gradient(
        b.toy, b.new, rewards=b.rewards, measure=measure, beta=BETA,
        target_logits=b.old, mass=mass)
    for baseline in (0.0, 0.6):
      got = mass * expected_gradient(
          b.toy, spec, b.new, b.old, advantages=b.rewards - baseline,
          mass=mass)
      error = max(error, _distance(-got, exact))
  return error


def _penalty_gradient(b: Bandit, estimator: str) -> np.ndarray:
  """Expected gradient of the reverse KL's penalty toward the reference."""
  spec = LossSpec(
      bounds=None, gate=gates.Unclipped(), reduction=TokenMean(),
      penalty=Penalty('reverse_kl', 1.0, estimator=estimator))
  return expected_gradient(
      b.toy, spec, b.new, b.old, advantages=0 * b.rewards,
      reference_logits=b.reference)


def _differentiate(b: Bandit, function: Callable) -> np.ndarray:
  """grad of a function (new, old, reference, sampling probabilities)."""
  with jax.enable_x64(True):
    new, old, reference = map(jnp.asarray, (b.new, b.old, b.reference))
    return np.asarray(jax.grad(function)(
        new, old, reference, b.toy.probabilities(old)))


def _bandit(seed: int) -> Bandit:
  toy = enumerate_sequences(9, 1, num_contexts=2)
  rng = np.random.default_rng(seed)
  tables = rng.normal(size=(3, toy.num_rows, toy.num_tokens))
  return Bandit(toy, *tables, rng.normal(size=len(toy.tokens)))


def _distance(a, b) -> float:
  return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def covering(kind: str, name: str) -> tuple[str, ...]:
  """Names of the certificates that speak of a rule."""
  del kind, name
  return ()
