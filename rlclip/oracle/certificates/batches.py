"""Cutting, padding and sharding a batch change no gradient."""
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import LossSpec, reduce, rule
from rlclip.oracle import examples
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.gradients import is_whole_batch, needed_statistics

_KINDS = ('algorithm', 'gate', 'bounds', 'level', 'reduction', 'mismatch',
          'penalty')
_GROUPS, _GROUP_SIZE, _WIDTH = 8, 4, 5


class Batch(NamedTuple):
  """Arrays of RuleInputs by name; those in `moving` depend on the policy."""
  moving: dict[str, Any]  # [N, C] each, or a dict of such
  tokens: dict[str, np.ndarray]  # [N, C] each
  rows: dict[str, np.ndarray]  # [N] each


def _cuttable():
  """Keys of rules that look at one group at a time."""
  return tuple(key for key in examples.keys(*_KINDS)
               if not is_whole_batch(examples.spec(key)))


@register('micro_batches_are_the_full_batch', subjects=_cuttable)
def micro_batches_are_the_full_batch(seed: int, key: str) -> float:
  """Losses, weights and gradients of parts add up to those of the whole.

  For parts of whole groups; rules that look at whole batches are left out.
  """
  batch, spec = _draw(seed), examples.spec(key)
  whole = _evaluate(spec, batch)
  cuts = (0, 1, 4, _GROUPS)
  parts = [_evaluate(spec, jax.tree.map(
      lambda x: x[a * _GROUP_SIZE:b * _GROUP_SIZE], batch))
      for a, b in zip(cuts, cuts[1:])]
  error = max(distance(sum(p[i] for p in parts), whole[i]) for i in (0, 1))
  gradients = jax.tree.map(lambda *x: np.concatenate(x), *(p[2] for p in parts))
  return max(error, _tree_distance(gradients, whole[2]))


@register('padded_is_trimmed', subjects=lambda: examples.keys(*_KINDS))
def padded_is_trimmed(seed: int, key: str) -> float:
  """Padding of any content, in columns and in rows, changes nothing.

  Sums over the padded width are held to one constant, as that width is what
  they divide by.
  """
  batch, spec = _draw(seed), examples.spec(key)
  if getattr(spec.reduction, 'constant', 0) is None:
    spec = dataclasses.replace(spec, reduction=dataclasses.replace(
        spec.reduction, constant=float(_WIDTH)))
  rng = np.random.default_rng(seed)
  bad = lambda shape: rng.choice([np.nan, np.inf, -np.inf], shape)

  def pad(x):
    out = np.zeros((len(x) + _GROUP_SIZE, _WIDTH + 3), x.dtype)
    if x.dtype != bool:
      out = bad(out.shape)
    out[:len(x), :_WIDTH] = x
    return out

  rows = {k: np.concatenate([v, bad(_GROUP_SIZE)])
          for k, v in batch.rows.items()}
  padded = Batch(jax.tree.map(pad, batch.moving),
                 jax.tree.map(pad, batch.tokens), rows)
  want, got = _evaluate(spec, batch), _evaluate(spec, padded)
  trim = lambda x: x[:_GROUPS * _GROUP_SIZE, :_WIDTH]
  outside = jax.tree.map(lambda x: distance(np.sum(np.abs(x)), np.sum(np.abs(
      trim(x)))), got[2])
  return max(distance(got[0], want[0]), distance(got[1], want[1]),
             _tree_distance(jax.tree.map(trim, got[2]), want[2]),
             *jax.tree.leaves(outside))


@register('many_devices_are_one', covers=('algorithm:*', 'reduction:*'))
def many_devices_are_one(seed: int) -> float:
  """A batch laid over all devices has the loss and gradient of one device.

  Over as many devices as divide it, eight at most; on a machine with one the
  certificate says nothing. Eight on a CPU take
  XLA_FLAGS=--xla_force_host_platform_device_count=8.
  """
  batch = _draw(seed)
  num = next(n for n in (8, 4, 2, 1) if n <= len(jax.devices()))
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:num]), ('data',))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
  specs = [examples.spec(key)
           for key in examples.keys('algorithm', 'reduction')]
  with jax.enable_x64(True):
    run = jax.jit(
        lambda batch: [_traced(spec, batch) for spec in specs],
        compiler_options={'xla_backend_optimization_level': 0})
    alone = run(jax.device_put(batch, jax.devices()[0]))
    sharded = run(jax.device_put(batch, sharding))
    return _tree_distance(alone, sharded)


def _draw(seed: int) -> Batch:
  """Groups of completions of different lengths, one of them empty.

  Masks have holes, as where tokens of a tool stand between the sampled ones.
  """
  rng = np.random.default_rng(seed)
  num = _GROUPS * _GROUP_SIZE
  shape = (num, _WIDTH)
  lengths = rng.integers(1, _WIDTH + 1, num)
  lengths[:2] = 0, _WIDTH
  mask = (np.arange(_WIDTH) < lengths[:, None]) & (rng.random(shape) > 0.1)
  behavior = -rng.exponential(1.0, shape)
  near = lambda scale: behavior + rng.normal(0, scale, shape)
  rewards = rng.integers(0, 2, num).astype(float)
  means = rewards.reshape(_GROUPS, _GROUP_SIZE).mean(1).repeat(_GROUP_SIZE)
  return Batch(
      moving={'logps': near(0.3), 'entropy': rng.random(shape),
              'statistics': rng.exponential(0.05, shape)},
      tokens={'behavior_logps': behavior, 'old_logps': near(0.1),
              'reference_logps': near(0.5), 'mask': mask},
      rows={'advantages': rewards - means + rng.normal(0, 0.1, num),
            'rewards': rewards, 'group_mean': means})


def _evaluate(spec: LossSpec, batch: Batch):
  """(total, weight, gradients) of a batch in float64, on the host."""
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, _traced(
        spec, jax.tree.map(jnp.asarray, batch)))


def _traced(spec: LossSpec, batch: Batch):
  def mean(moving):
    return _mean(spec, batch._replace(moving=moving))

  def total(moving):
    out = mean(moving)
    return out.total, out.weight

  (value, weight), gradients = jax.value_and_grad(total, has_aux=True)(
      batch.moving)
  return value, weight, gradients


def _mean(spec, batch):
  moving = dict(batch.moving)
  values = moving.pop('statistics')
  if 'statistics' in rule.RuleInputs._fields:
    moving['statistics'] = {s: values for s in needed_statistics(spec)}
  inputs = rule.RuleInputs(
      **moving, **batch.tokens, **batch.rows, group_size=_GROUP_SIZE)
  out = rule.per_token(spec, inputs)
  mask = jnp.asarray(inputs.mask)
  return reduce.mean(out.loss, mask, spec.reduction(mask))


def _tree_distance(a, b) -> float:
  return functools.reduce(
      max, jax.tree.leaves(jax.tree.map(distance, a, b)), 0.0)
