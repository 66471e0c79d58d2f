"""The per-token loss that all rules share, and what it says about itself."""
from typing import Any, Mapping, NamedTuple

import jax
import jax.numpy as jnp

from rlclip import divergences
from rlclip.losses import log_ratio as log_ratio_lib
from rlclip.losses.spec import LossSpec
from rlclip.trust_region import levels
from rlclip.trust_region.bounds import BoundsInputs
from rlclip.trust_region.gates import GateInputs
from rlclip.types import Statistic

Array = Any


class RuleInputs(NamedTuple):
  """Log-probs and what belongs to a row; what stands at masked places is free.

  `logps`, `entropy` and `statistics` are differentiated.
  """
  logps: Array  # [N, C]
  behavior_logps: Array  # [N, C]
  old_logps: Array | None  # [N, C]
  reference_logps: Array | None  # [N, C]
  mask: Array  # bool[N, C]
  advantages: Array  # [N]
  rewards: Array | None = None  # [N]
  group_mean: Array | None = None  # [N]
  group_size: Any = None  # int, or [N]
  entropy: Array | None = None  # [N, C]
  statistics: Mapping[Statistic, Array] = {}  # [N, C] each
  factors: Mapping[str, Array] = {}  # of the dials, by role


class RuleOutput(NamedTuple):
  loss: Array  # [N, C]
  metrics: Mapping[str, Array]  # each [N, C], to be averaged over tokens


def per_token(spec: LossSpec, inputs: RuleInputs) -> RuleOutput:
  """The loss of every token under a rule.

  Args:
    spec: the rule.
    inputs: arrays of any float type; bf16 is computed in float32.

  Returns:
    The RuleOutput. Clip metrics are 1 where the gradient was removed or
    changed.

  Raises:
    ValueError: where the rule needs an array that is None, or the numbers of
      rows are not one a row.
  """
  x = _clean(inputs)
  anchor = _need(spec, x, 'old_logps' if spec.anchor == 'old' else
                 'behavior_logps')
  for need in spec.needs:
    if need not in x.statistics:
      raise ValueError(
          f'The rule needs {need}, got {tuple(x.statistics)}. Pass it among '
          f'the statistics, or change the rule.')
  level = levels.get(spec.level)
  ratio = log_ratio_lib.limit(level(x.logps - anchor, x.mask))
  beta, target, inside, limited = 0.0, None, 0.0, ratio.limited
  if spec.penalty is not None:
    factor = x.factors.get('beta', 1.0)
    beta = spec.penalty.beta * factor
    target = (_need(spec, x, 'reference_logps') if spec.needs_reference
              else anchor)
    if spec.penalty.placement == 'inside':
      toward = log_ratio_lib.limit(level(x.logps - target, x.mask))
      inside, limited = (spec.penalty.inside(toward.value, factor),
                         limited | toward.limited)
  gate = spec.gate(GateInputs(
      ratio.value, level(x.logps, x.mask), x.advantages, inside,
      _region(spec, x, ratio.value, anchor), x.mask, anchor))
  loss, metrics = gate.loss, {}
  if spec.penalty is not None:
    penalty = spec.penalty.beside(x.logps, target, anchor, x.statistics)
    metrics['penalty'], limited = penalty.value, limited | penalty.limited
    if spec.penalty.placement == 'beside':
      loss = loss + beta * penalty.value
  if spec.needs_old:
    loss = _correct(spec, x, loss, metrics)
  if spec.entropy_bonus:
    # After the correction: the entropy is the policy's, whoever sampled.
    loss = loss - spec.entropy_bonus * _need(spec, x, 'entropy')
  metrics.update({
      'clip_ratio/low_mean': gate.blocked_low,
      'clip_ratio/high_mean': gate.blocked_high,
      'clip_ratio/region_mean': gate.blocked_low | gate.blocked_high,
      'ratio/mean': jnp.exp(ratio.value),
      'ratio/limited_mean': limited,
      'trust_region/forward_kl':
          divergences.get('forward_kl').generator(ratio.value),
  })
  if x.reference_logps is not None:
    metrics['kl'] = _reverse_kl(x.logps, x.reference_logps, anchor)
  if x.entropy is not None:
    metrics['entropy'] = x.entropy
  held = {k: jax.lax.stop_gradient(jnp.asarray(v, loss.dtype))
          for k, v in metrics.items()}
  return RuleOutput(loss, held)


def _clean(inputs: RuleInputs) -> RuleInputs:
  """float32 or wider; 0 where masked; rows' numbers as [N, 1]."""
  mask = jnp.asarray(inputs.mask).astype(bool)
  for name in ('advantages', 'rewards', 'group_mean'):
    value = getattr(inputs, name)
    if value is not None and jnp.shape(value) != mask.shape[:1]:
      raise ValueError(
          f'{name} must be one a row, {mask.shape[:1]} where the mask is '
          f'{mask.shape}, got {jnp.shape(value)}. Nothing is broadcast.')
  hold = jax.lax.stop_gradient

  def wide(values):
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))

  # Mask before any arithmetic: inf - inf and exp(inf) * 0 are nan, in the
  # value and in the gradient.
  tokens = lambda v: None if v is None else jnp.where(mask, wide(v), 0.0)
  used = jnp.any(mask, -1)
  rows = lambda v: None if v is None else hold(
      jnp.where(used, wide(v), 0.0))[:, None]
  size = inputs.group_size
  return RuleInputs(
      logps=tokens(inputs.logps),
      behavior_logps=hold(tokens(inputs.behavior_logps)),
      old_logps=_map(hold, tokens(inputs.old_logps)),
      reference_logps=_map(hold, tokens(inputs.reference_logps)),
      mask=mask, advantages=rows(inputs.advantages),
      rewards=rows(inputs.rewards), group_mean=rows(inputs.group_mean),
      group_size=(size if size is None or jnp.ndim(size) == 0
                  else jnp.asarray(size)[:, None]),
      entropy=tokens(inputs.entropy),
      statistics={k: tokens(v) for k, v in inputs.statistics.items()},
      factors=inputs.factors)


def _map(function, value):
  return None if value is None else function(value)


def _need(spec, inputs, name):
  value = getattr(inputs, name)
  if value is None:
    raise ValueError(
        f'The rule needs {name}, got None (anchor {spec.anchor!r}, penalty '
        f'{spec.penalty}). Pass it, or change the rule.')
  return value


def _region(spec, inputs, log_ratio, anchor):
  """The region of a gate that has one."""
  if spec.bounds is None:
    return None
  if spec.bounds.needs_rewards:
    for name in ('rewards', 'group_mean', 'group_size'):
      if getattr(inputs, name) is None:
        raise ValueError(
            f'{type(spec.bounds).__name__} needs rewards and groups, and '
            f'{name} is None. Pass rewards= and group=.')
  hold = jax.lax.stop_gradient
  return spec.bounds(BoundsInputs(
      inputs.advantages, hold(log_ratio), anchor, inputs.mask,
      inputs.rewards, inputs.group_mean, inputs.group_size,
      inputs.factors.get('width', 1.0),
      {need: hold(inputs.statistics[need]) for need in spec.bounds.needs}))


def _correct(spec, inputs, loss, metrics):
  """Applies the mismatch correction, and reports how far old is from behavior.
  """
  difference = inputs.old_logps - inputs.behavior_logps
  ratio = log_ratio_lib.limit(difference).value
  metrics['sampling/sampling_logp_difference/mean'] = jnp.abs(difference)
  metrics['sampling/importance_sampling_ratio/mean'] = jnp.exp(ratio)
  if spec.mismatch is None:
    return loss
  weight = spec.mismatch(ratio, inputs.mask)
  metrics['sampling/corrected_mean'] = weight != jnp.exp(ratio)
  return weight * loss


def _reverse_kl(logps, reference_logps, anchor_logps):
  """Unbiased estimate of KL(policy || reference) from the sampler's tokens."""
  d = log_ratio_lib.limit(logps - reference_logps).value
  scale = jnp.exp(log_ratio_lib.limit(reference_logps - anchor_logps).value)
  return scale * divergences.get('reverse_kl').generator(d)
