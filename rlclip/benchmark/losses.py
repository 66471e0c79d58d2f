"""What each rule's loss costs, as a share of a whole update."""
from typing import Callable, Sequence

import jax
import numpy as np

from rlclip import algorithms, assembly
from rlclip import config as config_lib
from rlclip import losses
from rlclip.benchmark import measure
from rlclip.types import Batch, TokenStats

_LOSS_REPEATS, _UPDATE_REPEATS = 30, 3
_RATIOS = {'ratio': 'median_s', 'cpu_ratio': 'cpu_s'}


def run(experiment: config_lib.Experiment,
        names: Sequence[str] | None = None) -> measure.Result:
  """Every rule's loss and gradient against the experiment's whole update.

  A loss is jitted by itself, value, metrics and the gradient by [N, C]
  log-probs of one mini-batch: it pays its own dispatch, which it does not
  inside an update. The update is that of the experiment's own rule, with
  random weights. A rule that reads a reference, or the learner's own
  log-probs, has a dearer step than that; it is compared with this one.

  Args:
    experiment: whose sizes, architecture and learner are taken.
    names: of algorithms; by default all but those that ask for divergences
      over the whole vocabulary, whose cost lies in the scoring.

  Returns:
    The Result: 't' has seconds of 'update' and of 'loss/NAME'; 'ratio', by
    the wall clock, and 'cpu_ratio', of processor time, a loss's median over
    the update's; 'largest' the dearest loss by each; 'compilations' how often
    each was compiled for two different batches.
  """
  names = names or [n for n in algorithms.names()
                    if not algorithms.get(n).needs]
  parts = assembly.build(experiment)
  batches = [random_batch(experiment, seed) for seed in (0, 1)]
  batches = jax.device_put(batches, [
      parts.partitioner.batch_shardings(batch) for batch in batches])
  times = {'update': measure.measure(
      _update_step(parts), batches, _UPDATE_REPEATS)}
  compilations = {'update': parts.learner.update._cache_size()}
  for name in names:
    step = _loss_step(algorithms.get(name))
    times[f'loss/{name}'] = measure.measure(step, batches, _LOSS_REPEATS)
    compilations[name] = step._cache_size()
  ratios = {key: {n: times[f'loss/{n}'][clock] / times['update'][clock]
                  for n in names} for key, clock in _RATIOS.items()}
  rows, length = batches[0].mask.shape
  return measure.result(
      'losses', experiment.model.dtype, times,
      info={'update_rule': experiment.algorithm.name, 'rows': rows,
            'completion_length': length},
      **ratios, largest={k: max(v, key=v.get) for k, v in ratios.items()},
      compilations=compilations)


def table(result: measure.Result, most: int = 5) -> str:
  """The dearest losses of a result, a line each, for the terminal."""
  ratio, cpu_ratio = (result[key] for key in _RATIOS)
  lines = ['medians: ms by the clock, ms of processor time, both as shares']

  def add(name, key, *shares):
    own = result['t'][key]
    lines.append(f'{name:20} {1e3 * own["median_s"]:11.3f} '
                 f'{1e3 * own["cpu_s"]:11.3f}  '
                 + '  '.join(f'{share:9.4%}' for share in shares))

  add('update', 'update')
  for name in sorted(ratio, key=cpu_ratio.get, reverse=True)[:most]:
    add(name, f'loss/{name}', ratio[name], cpu_ratio[name])
  again = [n for n, count in result['compilations'].items() if count != 1]
  lines.append(f'{len(ratio)} losses; compiled more than once: '
               f'{", ".join(again) or "none"}')
  return '\n'.join(lines)


def random_batch(experiment: config_lib.Experiment, seed: int) -> Batch:
  """A mini-batch of the experiment's sizes, with nothing in it trained.

  Completions are of random lengths, log-probs about -2, rewards 0 or 1.
  """
  e, r = experiment, experiment.rollout
  rng = np.random.default_rng(seed)
  num_prompts = r.num_prompts // e.learner.num_mini_batches
  rows = num_prompts * r.group_size
  shape = rows, r.completion_length
  logps = lambda: rng.normal(-2, 0.3, shape).astype(np.float32)
  rewards = rng.integers(0, 2, (num_prompts, r.group_size)).astype(np.float32)
  mean = np.repeat(rewards.mean(-1), r.group_size)
  return Batch(
      prompts=rng.integers(0, 10, (num_prompts, r.prompt_length), np.int32),
      prompt_lengths=np.full(num_prompts, r.prompt_length, np.int32),
      completions=rng.integers(0, 10, shape, np.int32),
      mask=np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (rows, 1)),
      behavior_logps=logps(), old_logps=logps(),
      advantages=rewards.reshape(-1) - mean, rewards=rewards.reshape(-1),
      group_mean=mean, group_size=np.full(rows, r.group_size, np.float32),
      truncated=np.zeros(rows, bool))


def _loss_step(spec: losses.LossSpec) -> Callable:
  """Jitted batch -> value, metrics and gradient."""
  loss = losses.make(spec)

  def total(policy, batch):
    reference = TokenStats(batch.behavior_logps, policy.entropy)
    out = loss(policy, reference if spec.needs_reference else None, batch)
    return out.loss.total, out

  @jax.jit
  def step(batch):
    # Any log-probs will do, if the compiler cannot know their ratio.
    policy = TokenStats(0.9 * batch.old_logps, -batch.old_logps)
    return jax.value_and_grad(total, has_aux=True)(policy, batch)
  return step


def _update_step(parts: assembly.Parts) -> Callable:
  """A function of a batch that moves a state of its own."""
  e, spec = parts.experiment, parts.loss_spec
  shardings = jax.tree.map(
      lambda leaf: leaf.sharding, assembly.abstract_params(parts))
  init = jax.jit(parts.model.init, out_shardings=shardings)
  params = init(jax.random.key(e.seed))
  state = parts.learner.init(params)
  reference = params if spec.needs_reference else None
  anchor = params if spec.needs_anchor_policy else None
  del params  # unless one of the two holds it

  def step(batch):
    nonlocal state
    state, _ = parts.learner.update(state, reference, batch, anchor)
    return state
  return step


measure.ITEMS.register('losses')(measure.Item(
    lambda options: run(options.experiment), table))
