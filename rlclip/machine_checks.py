"""Checks of a config that depend on the devices and processes there are."""
import math

import jax


def check_processes(e) -> None:
  """Stops where a program that is one process is told of others.

  Raises:
    ValueError: it is.
  """
  coordinator = e.distributed.coordinator
  if coordinator and not jax.distributed.is_initialized():
    raise ValueError(
        f'config.distributed.coordinator must be empty in a program that is '
        f'one process by itself, got {coordinator!r}.')


def check_rows(e, num_shards: int) -> None:
  """Stops where devices would not share the rows of an update evenly.

  Args:
    e: a config.Experiment.
    num_shards: ways in which the mesh cuts rows: data x fsdp.

  Raises:
    ValueError: with the nearest numbers that would do.
  """
  u, r, w = e.learner, e.rollout, e.warm_start
  parts = u.num_mini_batches * u.num_micro_batches
  if e.num_steps:
    _check_rows(
        'rollout.num_prompts / (learner.num_mini_batches x '
        'learner.num_micro_batches)', r.num_prompts // parts, r.group_size,
        num_shards)
  if w.num_steps:
    _check_rows('warm_start.batch_size', w.batch_size, 1, num_shards)


def _check_rows(key, num_prompts, group_size, num_shards):
  rows = num_prompts * group_size
  if rows % num_shards == 0:
    return
  step = num_shards // math.gcd(num_shards, group_size)
  below = num_prompts // step * step
  sizes = [str(n) for n in (below, below + step) if n]
  cuts = [str(n) for n in range(1, num_shards) if rows % n == 0]
  raise ValueError(
      f'config.{key} must give rows that the {num_shards} parts of the mesh '
      f'axes data and fsdp share evenly, got {num_prompts} prompts of '
      f'{group_size} completions. Make it {" or ".join(sizes)}, or data x fsdp '
      f'{" or ".join(cuts)} with tensor for the rest.')
