"""From a LossSpec to a loss: of a batch, or of bare arrays."""
import types
from typing import Any, Callable, Mapping

import jax.numpy as jnp

from rlclip.losses import reduce
from rlclip.losses.rule import per_token, RuleInputs
from rlclip.losses.spec import LossSpec
from rlclip.types import Batch, LossOutput, Statistic, TokenStats

Array = Any
Loss = Callable[..., LossOutput]  # see make()


def make(spec: LossSpec) -> Loss:
  """The loss of a rule, a pure function (policy, reference, batch).

  Args:
    spec: the rule.

  Returns:
    A function of TokenStats of the policy (differentiated), TokenStats of the
    reference or None, a Batch, and the factors of the rule's dials by role,
    which returns a LossOutput. Loss and metrics are Means; those of
    micro-batches add.
  """
  def loss(policy: TokenStats, reference: TokenStats | None, batch: Batch,
           factors: Mapping[str, Array] = types.MappingProxyType({})
           ) -> LossOutput:
    if spec.needs_reference and reference is None:
      raise ValueError(
          f'{spec.penalty} needs the TokenStats of the reference, got None.')
    return _reduce(spec, RuleInputs(
        logps=policy.logps, behavior_logps=batch.behavior_logps,
        old_logps=batch.old_logps,
        reference_logps=None if reference is None else reference.logps,
        mask=batch.mask, advantages=batch.advantages, rewards=batch.rewards,
        group_mean=batch.group_mean, group_size=batch.group_size,
        entropy=policy.entropy, statistics=policy.extra, factors=factors))
  return loss


def from_arrays(
    spec: LossSpec,
    *,
    logps: Array,
    behavior_logps: Array,
    advantages: Array,
    mask: Array,
    old_logps: Array | None = None,
    reference_logps: Array | None = None,
    rewards: Array | None = None,
    group: Array | None = None,
    entropy: Array | None = None,
    statistics: Mapping[Statistic, Array] | None = None,
    factors: Mapping[str, Array] | None = None,
) -> LossOutput:
  """The loss of a rule on bare arrays; differentiable in `logps`.

  Args:
    spec: the rule.
    logps: float[N, C], of the policy.
    behavior_logps: float[N, C], of the sampler.
    advantages: float[N], one a row; never broadcast.
    mask: bool[N, C], the sampled tokens; the rest may hold inf or nan.
    old_logps: float[N, C], for the anchor 'old'.
    reference_logps: float[N, C], for a penalty toward the reference.
    rewards: float[N], for group-adaptive bounds; a row with nan is left out,
      of its group's mean and of the loss.
    group: int[N], equal for the rows of one prompt; needed with rewards.
    entropy: float[N, C], of the policy, for an entropy bonus.
    statistics: float[N, C] each, those in `spec.needs`.
    factors: of the rule's dials, by role; missing ones are 1.

  Returns:
    The LossOutput; `.loss.value()` is the number to minimize.

  Raises:
    ValueError: for a shape other than said, or an array that the rule needs
      and does not get.
  """
  shape = jnp.shape(logps)
  if len(shape) != 2:
    raise ValueError(
        f'logps must be [N, C], rows by tokens, got shape {shape}.')
  for name, value, expected in (
      ('behavior_logps', behavior_logps, shape), ('mask', mask, shape),
      ('old_logps', old_logps, shape),
      ('reference_logps', reference_logps, shape),
      ('advantages', advantages, shape[:1]), ('rewards', rewards, shape[:1]),
      ('group', group, shape[:1]), ('entropy', entropy, shape),
      *((str(name), value, shape) for name, value in
        (statistics or {}).items())):
    if value is not None and jnp.shape(value) != expected:
      raise ValueError(
          f'{name} must have shape {expected} where logps has {shape}, got '
          f'{jnp.shape(value)}. Nothing is broadcast.')
  if jnp.asarray(mask).dtype != bool:
    raise ValueError(
        f'mask must be bool, got {jnp.asarray(mask).dtype}. Compare it with 0 '
        f'if it holds zeros and ones.')
  if rewards is not None and group is None:
    raise ValueError(
        'rewards need group, the index of each row\'s prompt; got None.')
  group_mean = group_size = None
  if rewards is not None:
    group_mean, group_size = _group_statistics(rewards, group)
    # A row that could not be scored leaves the loss as well.
    mask = jnp.asarray(mask) & ~jnp.isnan(jnp.asarray(rewards))[:, None]
  return _reduce(spec, RuleInputs(
      logps, behavior_logps, old_logps, reference_logps, mask, advantages,
      rewards, group_mean, group_size, entropy, statistics or {},
      factors or {}))


def _reduce(spec: LossSpec, inputs: RuleInputs) -> LossOutput:
  out = per_token(spec, inputs)
  mask = jnp.asarray(inputs.mask)
  every_token = reduce.TokenMean()(mask)
  return LossOutput(
      reduce.mean(out.loss, mask, spec.reduction(mask)),
      {name: reduce.mean(values, mask, every_token)
       for name, values in out.metrics.items()})


def _group_statistics(rewards, group):
  """Mean and number of the rewards of each row's group, [N] each."""
  rewards, group = jnp.asarray(rewards), jnp.asarray(group)
  known = ~jnp.isnan(rewards)
  same = (group[:, None] == group[None, :]) & known[None, :]
  count = jnp.maximum(jnp.sum(same, -1), 1)
  total = jnp.sum(jnp.where(same, jnp.where(known, rewards, 0.0), 0.0), -1)
  return total / count, count
