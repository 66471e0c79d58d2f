"""Which gradient each estimator of a divergence has."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import LossSpec, Penalty
from rlclip.losses import penalty as penalty_lib
from rlclip.oracle import compilation, distances, examples
from rlclip.oracle.certificates import bandit
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.gradients import exact_gradient, token_penalty_gradient
from rlclip.oracle.toy import enumerate_sequences

_K3 = ('penalty:unweighted_k3', 'divergence:reverse_kl',
       'divergence:forward_kl')
BETA = 0.37


@register('penalty_is_the_gradient_of_its_divergence',
          covers=('penalty:pathwise', 'penalty:score', 'penalty:exact',
                  'penalty:prefix'),
          subjects=lambda: examples.keys('divergence'))
def penalty_is_the_gradient_of_its_divergence(
    seed: int, keys) -> dict[str, float]:
  """A penalty has the gradient of D, from another policy's samples as well.

  For every estimator that claims it, beside the loss and inside the advantage,
  with actions as whole sequences.
  """
  b = bandit.make(seed)
  penalties = [(key, penalty) for key in keys
               for penalty in _unbiased(key.partition(':')[2])]
  gradients = bandit.penalty_gradients(b, [p for _, p in penalties])
  exact = _exact_gradients(
      b, {key: (key.partition(':')[2], b.reference) for key in keys})
  errors = dict.fromkeys(keys, 0.0)
  for (key, _), gradient in zip(penalties, gradients):
    errors[key] = max(errors[key], distance(gradient, exact[key]))
  return errors


@register('weighted_k3_is_reverse_kl',
          covers=('penalty:pathwise', 'divergence:reverse_kl'))
def weighted_k3_is_reverse_kl(seed: int) -> float:
  """w k3(ref / p), gradient through w, has the gradient of KL(p || ref)."""
  b = bandit.make(seed)
  by_hand = bandit.differentiate(
      b, lambda p, q, r: jnp.exp(p - q) * (jnp.exp(r - p) - 1 - (r - p)))
  ours = [bandit.penalty_gradient(b, name) for name in ('pathwise', 'score')]
  exact = _exact(b, 'reverse_kl', b.reference)
  return max(distance(got, exact) for got in (by_hand, *ours))


@register('held_weight_k3_is_the_other_kl', covers=_K3)
def held_weight_k3_is_the_other_kl(seed: int) -> float:
  """SG(w) k3(ref / p) has the gradient of KL(ref || p) instead."""
  b = bandit.make(seed)
  held = bandit.differentiate(b, lambda p, q, r: jax.lax.stop_gradient(
      jnp.exp(p - q)) * (jnp.exp(r - p) - 1 - (r - p)))
  return distance(held, _exact(b, 'forward_kl', b.reference))


@register('unweighted_k3_is_the_other_kl', covers=_K3)
def unweighted_k3_is_the_other_kl(seed: int) -> float:
  """GRPO's k3 has the gradient of KL(ref || p) on policy, not KL(p || ref)."""
  return _on_policy_error(seed, 'unweighted_k3', 'forward_kl')


@register('k2_on_policy_is_reverse_kl',
          covers=('penalty:unweighted_k2', 'divergence:reverse_kl',
                  'divergence:squared_log_ratio'))
def k2_on_policy_is_reverse_kl(seed: int) -> float:
  """log(p / ref)^2 / 2 has the gradient of KL(p || ref) on policy."""
  return _on_policy_error(seed, 'unweighted_k2', 'reverse_kl')


@register('k1_on_policy_is_zero', covers=('penalty:unweighted_k1',))
def k1_on_policy_is_zero(seed: int) -> float:
  """log(p / ref) as a loss has expected gradient 0 on policy."""
  b = bandit.make(seed)
  return distance(
      bandit.penalty_gradient(b._replace(old=b.new), 'unweighted_k1'), 0)


@register('k1_off_policy_pushes_from_the_sampler',
          covers=('penalty:unweighted_k1',))
def k1_off_policy_pushes_from_the_sampler(seed: int) -> float:
  """Off policy log(p / ref) has the gradient of -KL(sampler || p), no ref."""
  b = bandit.make(seed)
  return distance(bandit.penalty_gradient(b, 'unweighted_k1'),
                  -_exact(b, 'forward_kl', b.old))


@register('token_forward_kl_is_sequence_kl',
          covers=('divergence:forward_kl', 'algorithm:rpg_fkl',
                  'algorithm:rpg_ufkl'))
def token_forward_kl_is_sequence_kl(seed: int) -> float:
  """Summed over tokens, the forward KL is that of whole sequences."""
  return token_penalty_error('forward_kl', seed)


@register('prefix_weights_make_the_reverse_kl_exact',
          covers=('penalty:prefix', 'divergence:reverse_kl'))
def prefix_weights_make_the_reverse_kl_exact(seed: int) -> float:
  """-W R + beta sum_t (prod_{s<=t} w_s) log w_t is exact for sequences.

  Its expected gradient, through all weights, is minus that of
  E[R] - beta KL(p || sampler), with W the ratio of whole sequences; and so is
  the penalty's estimator 'prefix' alone.
  """
  toy, new, old, rewards = _sequences(seed)
  with jax.enable_x64(True):
    q, sampler = toy.logps(jnp.asarray(old)), toy.probabilities(
        jnp.asarray(old))

    def loss(theta):
      log_w = toy.logps(theta) - q
      prefix = jnp.exp(jnp.cumsum(log_w, -1))
      penalty = jnp.sum(jnp.where(toy.mask, prefix * log_w, 0.0), -1)
      return jnp.sum(sampler * (-prefix[:, -1] * rewards + BETA * penalty))

    got = compilation.quick(jax.grad(loss))(jnp.asarray(new))
  exact = exact_gradient(toy, new, rewards=rewards, measure='reverse_kl',
                         beta=BETA, target_logits=old)
  return max(distance(-got, exact),
             token_penalty_error('reverse_kl', seed, 'prefix'))


def token_penalty_error(measure: str, seed: int,
                        estimator: str = 'pathwise') -> float:
  """Distance of the token-wise penalty's gradient from the sequences' one."""
  toy, new, old, rewards = _sequences(seed)
  spec = LossSpec(penalty=Penalty(measure, 1.0, toward='anchor',
                                  estimator=estimator))
  exact = -exact_gradient(toy, new, rewards=0 * rewards, measure=measure,
                          beta=1.0, target_logits=old)
  return distance(token_penalty_gradient(toy, spec, new, old), exact)


def _sequences(seed):
  """Sequences of at most three tokens, two policies, rewards."""
  toy = enumerate_sequences(3, 3, stop=2)
  rng = np.random.default_rng(seed)
  new, old = rng.normal(size=(2, toy.num_rows, toy.num_tokens))
  return toy, new, old, rng.normal(size=len(toy.tokens))


def _unbiased(measure):
  """Every Penalty toward the reference that claims a divergence's gradient."""
  for estimator, placement in itertools.product(
      penalty_lib.ESTIMATORS, penalty_lib.PLACEMENTS):
    if estimator.startswith('unweighted'):
      continue
    try:
      yield Penalty(measure, BETA, estimator=estimator, placement=placement)
    except ValueError:
      continue  # not an estimator of this divergence, or not there


def _on_policy_error(seed, estimator, measure):
  b = bandit.make(seed)
  return distance(bandit.penalty_gradient(b._replace(old=b.new), estimator),
                  _exact(b, measure, b.reference))


def _exact(b, measure, target):
  """grad D(p || target)."""
  return _exact_gradients(b, {None: (measure, target)})[None]


def _exact_gradients(b, cases):
  """grad D(p || target) by name, of (measure, target)s; compiled together."""
  def gradients(theta):
    return [jax.grad(lambda logits: distances.of_sequences(
        b.toy, measure, logits, jnp.asarray(target)))(theta)
        for measure, target in cases.values()]

  with jax.enable_x64(True):
    got = compilation.quick(gradients)(jnp.asarray(b.new))
  return dict(zip(cases, map(np.asarray, got)))
