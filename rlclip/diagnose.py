"""What `experiments.doctor` finds out about a config on this machine."""
from typing import NamedTuple

import jax
import numpy as np
import rich.table

from rlclip import advantages, assembly, rollouts
from rlclip.data import batching
from rlclip.types import Params, Request

_NUM_PROMPTS, _GROUP = 4, 2


class Parameter(NamedTuple):
  """One row of the table of parameters."""
  name: str
  shape: tuple[int, ...]
  axes: tuple[str | None, ...]
  placement: str  # mesh axes a dimension, '-' for whole
  shard: tuple[int, ...]  # what one device holds
  megabytes_per_device: float


class Agreement(NamedTuple):
  """Sampler against learner on the same weights, and the loss at step 0."""
  num_tokens: int
  max_difference: float  # of log-probs, nats
  mean_difference: float  # absolute
  mean_ratio: float  # learner / sampler
  max_drift: float  # of log-probs between two scorings of the learner, nats
  clip_fraction: float  # of the loss, learner against itself: 0
  divergence: float  # KL(old || new) of the learner against itself: 0


def parameters(parts: assembly.Parts) -> list[Parameter]:
  """Name, shape, logical axes and placement of every parameter."""
  shapes = assembly.abstract_state(parts).params
  rows = []
  for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]:
    axes = parts.learner.axes
    for key in path:
      axes = axes[key.key]
    spec = leaf.sharding.spec
    shard = leaf.sharding.shard_shape(leaf.shape)
    rows.append(Parameter(
        '/'.join(key.key for key in path), leaf.shape, axes,
        ', '.join('-' if entry is None else str(entry) for entry in spec),
        shard, np.prod(shard) * leaf.dtype.itemsize / 2**20))
  return rows


def parameter_table(parts: assembly.Parts) -> rich.table.Table:
  """`parameters`, to be shown: a row each, and what a device holds of it."""
  table = rich.table.Table(
      rich.table.Column('parameter', overflow='fold'), 'shape', 'axes',
      'mesh axes', 'a device', 'MiB a device')
  for row in parameters(parts):
    table.add_row(
        row.name, str(row.shape), str(row.axes), row.placement,
        str(row.shard), f'{row.megabytes_per_device:.2f}')
  return table


def agreement(parts: assembly.Parts, params: Params) -> Agreement:
  """Samples a few completions and scores them with the learner.

  Args:
    parts: of the run.
    params: the weights both sides use.

  Returns:
    How far apart the two sides are. In float32 the difference is rounding; in
    bfloat16 look at the mean ratio, which should be 1.
  """
  e = parts.experiment
  prompts = rollouts.encode(
      parts.task, parts.tokenizer, 'train', range(_NUM_PROMPTS),
      limit=e.rollout.prompt_length)
  spec = assembly.rollout_spec(parts)
  parts.sampler.load_weights(params, 0)
  completions = parts.sampler.generate([
      Request(i * _GROUP + g, prompt.tokens, spec)
      for i, prompt in enumerate(prompts) for g in range(_GROUP)])
  # Rewards that differ, so that every row has an advantage.
  rewards = np.tile([0.0, 1.0], (_NUM_PROMPTS, 1))
  batch = batching.make_batch(
      prompts, [completions[i * _GROUP:(i + 1) * _GROUP]
                for i in range(_NUM_PROMPTS)],
      rewards, advantages.get('group_mean')(rewards),
      prompt_length=e.rollout.prompt_length,
      completion_length=e.rollout.completion_length)
  score = lambda: parts.learner.score(params, batch)
  policy, again = score(), score()
  logps, mask = np.asarray(policy.logps, np.float64), batch.mask
  difference = (logps - batch.behavior_logps)[mask]
  out = assembly.losses.make(parts.loss_spec)(
      policy, again, batch._replace(
          old_logps=again.logps, behavior_logps=again.logps))
  value = lambda name: float(out.metrics[name].value())
  return Agreement(
      num_tokens=int(mask.sum()),
      max_difference=float(np.abs(difference).max()),
      mean_difference=float(np.abs(difference).mean()),
      mean_ratio=float(np.exp(difference).mean()),
      max_drift=float(np.abs(logps - np.asarray(again.logps))[mask].max()),
      clip_fraction=value('clip_ratio/region_mean'),
      divergence=value('trust_region/forward_kl'))
