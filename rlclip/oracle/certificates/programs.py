"""All rules on one batch, compiled together: op by op they would take minutes.
"""
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import LossSpec, reduce, rule
from rlclip.oracle import compilation, examples

GROUPS, GROUP_SIZE, WIDTH = 8, 4, 5


class Batch(NamedTuple):
  """Arrays of RuleInputs by name; those in `moving` depend on the policy."""
  moving: dict[str, Any]  # float64[N, C] each
  tokens: dict[str, Any]  # [N, C] each
  rows: dict[str, Any]  # float64[N] each


class Result(NamedTuple):
  total: Any  # of the loss
  weight: Any
  gradients: dict[str, Any]  # of the total by `moving`
  blocked_low: Any  # [N, C], the clip metrics of tokens; 0 where masked
  blocked_high: Any


def draw(seed: int) -> Batch:
  """Groups of completions of different lengths, one of them empty.

  Masks have holes, as where the tokens of a tool stand between sampled ones.
  """
  rng = np.random.default_rng(seed)
  num = GROUPS * GROUP_SIZE
  shape = (num, WIDTH)
  lengths = rng.integers(1, WIDTH + 1, num)
  lengths[:2] = 0, WIDTH
  mask = (np.arange(WIDTH) < lengths[:, None]) & (rng.random(shape) > 0.1)
  behavior = -rng.exponential(1.0, shape)
  near = lambda scale: behavior + rng.normal(0, scale, shape)
  rewards = rng.integers(0, 2, num).astype(float)
  means = rewards.reshape(GROUPS, GROUP_SIZE).mean(1).repeat(GROUP_SIZE)
  return Batch(
      moving={'logps': near(0.3), 'entropy': rng.random(shape),
              'statistics': rng.exponential(0.05, shape)},
      tokens={'behavior_logps': behavior, 'old_logps': near(0.1),
              'reference_logps': near(0.5), 'mask': mask},
      rows={'advantages': rewards - means + rng.normal(0, 0.1, num),
            'rewards': rewards, 'group_mean': means})


def run(batch: Batch, keys: tuple[str, ...],
        dtype: Any = np.float64) -> dict[str, Result]:
  """Losses and gradients of the rules that these keys show.

  Args:
    batch: of numpy arrays, or of arrays laid over devices.
    keys: of `examples`.
    dtype: to compute in, float64 or float32.

  Returns:
    Results on the host by key.
  """
  # One program for all questions, and a small one for a single rule.
  compiled = keys if len(keys) == 1 else examples.distinct_keys()
  results = dict(zip(compiled, run_specs(
      batch, tuple(map(spec, compiled)), dtype)))
  return {key: results[key] for key in keys}


def run_specs(batch: Batch, specs: tuple[LossSpec, ...],
              dtype: Any = np.float64) -> list[Result]:
  """As `run`, for rules."""
  cast = lambda x: x if x.dtype == bool else x.astype(dtype)
  with jax.enable_x64(np.dtype(dtype) == np.float64):
    results = _program(specs)(jax.tree.map(cast, batch))
    return jax.tree.map(np.asarray, results)


def spec(key: str) -> LossSpec:
  """A rule that shows this key.

  Sums over the padded width are held to WIDTH, as that is what they divide by.
  """
  shown = examples.spec(key)
  if getattr(shown.reduction, 'constant', 0) is None:
    return dataclasses.replace(shown, reduction=dataclasses.replace(
        shown.reduction, constant=float(WIDTH)))
  return shown


def evaluate(of: LossSpec, batch: Batch) -> Result:
  """Loss, gradients and metrics of one rule; to be traced."""
  def total(moving):
    moving = dict(moving)
    values = moving.pop('statistics')
    moving['statistics'] = dict.fromkeys(of.needs, values)
    out = rule.per_token(of, rule.RuleInputs(
        **moving, **batch.tokens, **batch.rows, group_size=GROUP_SIZE))
    mask = jnp.asarray(batch.tokens['mask'])
    loss = reduce.mean(out.loss, mask, of.reduction(mask))
    blocked = [jnp.where(mask, out.metrics[f'clip_ratio/{side}_mean'], 0)
               for side in ('low', 'high')]
    return loss.total, (loss.weight, blocked)

  (value, (weight, blocked)), gradients = jax.value_and_grad(
      total, has_aux=True)(batch.moving)
  return Result(value, weight, gradients, *blocked)


@functools.lru_cache(maxsize=8)
def _program(specs):
  # Equal rules under different names are computed once.
  distinct = tuple(dict.fromkeys(specs))
  program = compilation.quick(
      lambda batch: [evaluate(each, batch) for each in distinct])

  def call(batch):
    results = dict(zip(distinct, program(batch)))
    return [results[each] for each in specs]

  return call
