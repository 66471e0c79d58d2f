"""What a rule's gradient is, beside what its objective says it should be."""
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses.spec import LossSpec
from rlclip.oracle import compilation
from rlclip.oracle.gradients import exact_gradient, objective, sample_gradients
from rlclip.oracle.toy import Toy
from rlclip.trust_region import levels

Array = Any


@dataclasses.dataclass(frozen=True)
class Report:
  """Gradients of ascent by the logits, float64[R, V] each.

  Attributes:
    value: J, the objective that the rule states.
    exact: grad J.
    expected: what the rule's gradient is on average under the sampler, in
      units where the mean weight of a token is 1.
    variance: trace of the covariance of one sequence's gradient under the
      sampler, in the same units.
  """
  value: float
  exact: np.ndarray
  expected: np.ndarray
  variance: float

  @property
  def bias(self) -> np.ndarray:
    """expected - exact."""
    return self.expected - self.exact

  @property
  def relative_bias(self) -> float:
    """Size of the bias over that of the exact gradient."""
    return float(np.linalg.norm(self.bias) / np.linalg.norm(self.exact))


def measure(toy: Toy, spec: LossSpec, logits: Array, behavior_logits: Array, *,
            rewards: Array, advantages: Array | None = None,
            old_logits: Array | None = None,
            reference_logits: Array | None = None, group_size: int = 8,
            batch_size: int | None = None) -> Report:
  """Holds a rule's gradient against that of the objective which it states.

  J = E_p[R] - beta D, with the divergence, target and direction of the rule's
  penalty, over whole sequences. What a trust region, a soft weight or a
  reduction by length does to the gradient is part of the bias; on policy, and
  with sequences of one length, every unbiased rule has none. With several
  tokens an off-policy ratio by token is a first-order surrogate, and biased.

  Args:
    toy: the sequences.
    spec: the rule.
    logits: float[R, V], of the policy.
    behavior_logits: float[R, V], of the policy that samples.
    rewards: float[M], one a sequence.
    advantages: float[M]; None takes the rewards minus their mean under the
      sampler in the same context.
    old_logits: float[R, V], for the anchor 'old'; None takes the sampler's.
    reference_logits: float[R, V], for a penalty toward the reference.
    group_size: k, for bounds that read the group.
    batch_size: as in `sample_gradients`.

  Returns:
    The Report.
  """
  rewards = np.asarray(rewards, np.float64)
  old_logits = behavior_logits if old_logits is None else old_logits
  group_mean = context_means(toy, behavior_logits, rewards)
  (samples,) = sample_gradients(
      toy, [spec], logits, behavior_logits,
      advantages=rewards - group_mean if advantages is None else advantages,
      old_logits=old_logits, reference_logits=reference_logits,
      batch_size=batch_size, rewards=rewards, group_mean=group_mean,
      group_size=group_size)
  terms = {'rewards': rewards}
  if spec.penalty is not None:
    anchor = old_logits if spec.anchor == 'old' else behavior_logits
    terms.update(
        measure=spec.penalty.measure, beta=spec.penalty.beta,
        target_logits=reference_logits if spec.needs_reference else anchor)
  scale = token_scale(toy, spec, behavior_logits)
  return Report(
      value=float(objective(toy, logits, **terms)),
      exact=exact_gradient(toy, logits, **terms),
      expected=-scale * samples.expected(toy),
      variance=scale ** 2 * samples.variance(toy))


def context_means(toy: Toy, logits: Array, rewards: Array) -> np.ndarray:
  """E[R | context] under a policy, for every sequence, float64[M]."""
  with jax.enable_x64(True):
    weights = np.asarray(toy.probabilities(jnp.asarray(logits, jnp.float64)))
  sums = np.bincount(toy.contexts, weights * rewards)
  return (sums / np.bincount(toy.contexts, weights))[toy.contexts]


def token_scale(toy: Toy, spec: LossSpec, behavior_logits: Array) -> float:
  """One over the mean weight of a token's gradient in the loss.

  A token's weight is what reduction and level together make of it: with the
  token mean 1 / E[length], with sums over a constant 1 / constant.
  """
  with jax.enable_x64(True):
    mask = jnp.asarray(toy.mask)
    level = levels.get(spec.level)

    def row(mask):
      reduction = spec.reduction(mask[None])
      weight = lambda x: jnp.sum(reduction.tokens * level(x, mask[None]))
      return jax.grad(weight)(jnp.zeros(mask[None].shape)), reduction.total

    weights, totals = compilation.quick(jax.vmap(row))(mask)
    p = toy.probabilities(jnp.asarray(behavior_logits, jnp.float64))
    lengths = jnp.sum(mask, -1)
    sums = jnp.sum(jnp.where(mask, weights[:, 0], 0.0), -1)
    return float(jnp.sum(p * lengths) * jnp.sum(p * totals) / jnp.sum(p * sums))
