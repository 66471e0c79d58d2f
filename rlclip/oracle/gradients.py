"""Exact gradients of objectives, and expected gradients of losses, in float64.
"""
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences
from rlclip.losses import rule
from rlclip.losses.spec import LossSpec
from rlclip.oracle.toy import Toy

Array = Any


def exact_gradient(toy: Toy, logits: Array, *, rewards: Array,
                   measure: str | None = None, beta: float = 0.0,
                   target_logits: Array | None = None,
                   mass: float = 1.0) -> np.ndarray:
  """grad of J = E_p[R] - beta D(p || mass q), over whole sequences.

  Args:
    toy: the sequences.
    logits: float[R, V], of p.
    rewards: float[M], one a sequence.
    measure: the divergence D, or None.
    beta: its weight.
    target_logits: float[R, V], of q.
    mass: total mass of an unnormalized q, 1 for a distribution. D is then
      sum q f(p / q) with the generator f, as RPG's unnormalized KLs are.

  Returns:
    float64[R, V].
  """
  with jax.enable_x64(True):
    rewards = jnp.asarray(rewards, jnp.float64)

    def objective(theta):
      value = jnp.sum(toy.probabilities(theta) * rewards)
      if measure is None:
        return value
      log_p = jnp.log(toy.probabilities(theta))
      log_q = jnp.log(mass * toy.probabilities(_double(target_logits)))
      generator = divergences.get(measure).generator
      return value - beta * jnp.sum(jnp.exp(log_q) * generator(log_p - log_q))

    return np.asarray(jax.grad(objective)(_double(logits)))


def expected_gradient(toy: Toy, spec: LossSpec, logits: Array,
                      behavior_logits: Array, *, advantages: Array,
                      old_logits: Array | None = None,
                      reference_logits: Array | None = None,
                      mass: float = 1.0, **rows: Array) -> np.ndarray:
  """grad of E[loss total] / E[loss weight] under the policy that samples.

  That is the limit of the loss of an ever larger batch.

  Args:
    toy: the sequences.
    spec: the rule.
    logits: float[R, V], of the policy.
    behavior_logits: float[R, V], of the policy that samples.
    advantages: float[M], one a sequence.
    old_logits: float[R, V], where the rule needs them.
    reference_logits: float[R, V], where the rule needs them.
    mass: of the unnormalized sampling policy in the ratio: w = p / (mass q).
      For sequences of one token.
    **rows: rewards, group_mean, group_size of RuleInputs, [M] each.

  Returns:
    float64[R, V], the gradient of the loss (minus that of the objective).
  """
  with jax.enable_x64(True):
    # Tables may be float32 where they were made outside of float64.
    logps = lambda table: (
        None if table is None else toy.logps(_double(table)))
    weight = toy.probabilities(_double(behavior_logits))
    by_row = jax.vmap(lambda m: spec.reduction(m[None]))(jnp.asarray(toy.mask))

    def loss(theta):
      out = rule.per_token(spec, rule.RuleInputs(
          logps=toy.logps(theta),
          behavior_logps=logps(behavior_logits) + jnp.log(mass),
          old_logps=logps(old_logits),
          reference_logps=logps(reference_logits), mask=toy.mask,
          advantages=_double(advantages), **rows))
      totals = jnp.sum(out.loss * by_row.tokens[:, 0], -1)
      return jnp.sum(weight * totals) / jnp.sum(weight * by_row.total)

    return np.asarray(jax.grad(loss)(_double(logits)))


def token_penalty_gradient(toy: Toy, spec: LossSpec, logits: Array,
                           behavior_logits: Array) -> np.ndarray:
  """grad of the expected sum over tokens of the penalty alone, without beta.

  To be held against the gradient of the divergence of whole sequences: with
  the forward KL they are equal, with the reverse KL they are not.
  """
  with jax.enable_x64(True):
    anchor = toy.logps(_double(behavior_logits))
    weight = toy.probabilities(_double(behavior_logits))

    def total(theta):
      out = spec.penalty.beside(toy.logps(theta), anchor, anchor)
      return jnp.sum(weight * jnp.sum(jnp.where(toy.mask, out.value, 0), -1))

    return np.asarray(jax.grad(total)(_double(logits)))


def _double(values):
  return jnp.asarray(values, jnp.float64)
