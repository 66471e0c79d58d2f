"""RPG's eight losses against the exact gradient, and its forms of clipping."""
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import Penalty
from rlclip.oracle.certificates import bandit
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.certificates.regions import gate_error
from rlclip.oracle.gradients import exact_gradient, sample_gradients
from rlclip.trust_region import bounds, gates

BETA = 0.37

# RPG's four divergences: name, measure, control variate.
VARIANTS = (('fkl', 'forward_kl', -1.0), ('ufkl', 'forward_kl', 0.0),
            ('rkl', 'reverse_kl', 1.0), ('urkl', 'reverse_kl', 0.0))
_UNNORMALIZED = (VARIANTS[1], VARIANTS[3])


@register('rpg_pathwise_is_exact',
          covers=('algorithm:rpg_[fu]*', 'algorithm:rpg_rkl',
                  'penalty:pathwise'))
def rpg_pathwise_is_exact(seed: int) -> float:
  """Unclipped, RPG's differentiable losses have the gradient of E[R] - beta D.
  """
  return rpg_error(seed, 'pathwise', 'beside', VARIANTS, 1.0)


@register('rpg_score_is_exact',
          covers=('algorithm:rpg_reinforce_*', 'penalty:score'))
def rpg_score_is_exact(seed: int) -> float:
  """So do its REINFORCE-style losses, with the penalty inside the advantage."""
  return rpg_error(seed, 'score', 'inside', VARIANTS, 1.0)


@register('rpg_inside_pathwise_is_exact',
          covers=('algorithm:rpg_rkl', 'algorithm:rpg_urkl',
                  'penalty:pathwise'))
def rpg_inside_pathwise_is_exact(seed: int) -> float:
  """So does Algorithm 1 with the reverse KL, gradient through the advantage."""
  return rpg_error(seed, 'pathwise', 'inside', VARIANTS[2:], 1.0)


@register('rpg_unnormalized_is_exact',
          covers=('algorithm:rpg_u*', 'algorithm:rpg_reinforce_u*'))
def rpg_unnormalized_is_exact(seed: int) -> float:
  """UFKL and URKL hold for a sampler of mass 1.7 (times that mass)."""
  return max(rpg_error(seed, 'pathwise', 'beside', _UNNORMALIZED, 1.7),
             rpg_error(seed, 'score', 'inside', _UNNORMALIZED, 1.7))


@register('section_3_3_is_algorithm_2',
          covers=('algorithm:rpg_reinforce_*', 'gate:dual_clip'))
def section_3_3_is_algorithm_2(seed: int) -> float:
  """RPG's section 3.3 with SG(A') has the gradient of its Algorithm 2."""
  rng = np.random.default_rng(seed)
  log_ratio = rng.normal(0, 1.0, 20_000)
  advantages = rng.normal(0, 1, 20_000)
  region, error = bounds.Fixed(0.2, 0.28), 0.0
  for _, measure, control_variate in VARIANTS:
    penalty = Penalty(measure, BETA, toward='anchor', estimator='score',
                      placement='inside', control_variate=control_variate)
    reference = lambda d: algorithm_2(
        d, d, advantages, BETA * _minus_weight(measure, control_variate, d))
    for form in ('surrogate', 'score'):
      error = max(error, gate_error(
          gates.DualClip(3.0, form), region, log_ratio, advantages, reference,
          penalty))
  return error


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


def rpg_error(seed, estimator, placement, variants, mass) -> float:
  """Largest error among RPG's losses of one form, with and without baseline.

  Args:
    seed: of the bandit.
    estimator: of the Penalty.
    placement: of the Penalty.
    variants: rows of VARIANTS.
    mass: of the unnormalized sampler.

  Returns:
    The largest difference from the exact gradient.
  """
  b, error = bandit.make(seed), 0.0
  specs = [bandit.unclipped(Penalty(
      measure, BETA, toward='anchor', estimator=estimator, placement=placement,
      control_variate=control_variate))
      for _, measure, control_variate in variants]
  exact = {measure: exact_gradient(
      b.toy, b.new, rewards=b.rewards, measure=measure, beta=BETA,
      target_logits=b.old, mass=mass) for _, measure, _ in variants}
  for baseline in (0.0, 0.6):
    samples = sample_gradients(
        b.toy, specs, b.new, b.old, advantages=b.rewards - baseline, mass=mass)
    error = max(error, *(
        distance(-mass * s.expected(b.toy), exact[measure])
        for s, (_, measure, _) in zip(samples, variants)))
  return error


def _minus_weight(measure, control_variate, log_ratio):
  """-(w f'(w) + c w), C_KL over beta, from the formulas of the paper."""
  w = jnp.exp(log_ratio)
  weight = w - 1 if measure == 'forward_kl' else w * log_ratio
  return -(weight + control_variate * w)
