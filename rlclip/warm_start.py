"""Supervised learning on a task's demonstrations, before step 0."""
import logging
import random

import jax
import numpy as np

from rlclip import assembly, learner, rollouts
from rlclip.data import batching
from rlclip.types import Completion, Params

_log = logging.getLogger(__name__)
_LOG_EVERY = 50


def run(parts: assembly.Parts, params: Params, show=lambda step, loss: None
        ) -> Params:
  """Trains on demonstrations; the same seed gives the same parameters.

  Args:
    parts: of the run.
    params: to start from.
    show: called with each update's number and, now and then, its loss.

  Returns:
    The trained parameters, laid on the mesh like those given.

  Raises:
    ValueError: if the task has no demonstrations.
  """
  e, spec = parts.experiment, parts.experiment.warm_start
  if parts.task.demonstration is None:
    raise ValueError(
        f'config.warm_start.num_steps is {spec.num_steps}, but the task '
        f'{parts.task.name!r} has no demonstrations. Set it to 0.')
  optimizer = learner.optimizer_from(
      spec.learning_rate, warmup_steps=max(1, spec.num_steps // 20),
      decay_steps=spec.num_steps + 1, schedule='cosine', max_grad_norm=1.0,
      b2=0.98)  # a warm start is short: 0.999 would average all of it
  supervised = learner.make(
      parts.model, learner.supervised_loss, optimizer, parts.partitioner,
      temperature=1.0, chunk=e.learner.logits_chunk)
  state = supervised.init(params)
  for step in range(spec.num_steps):
    batch = demonstrations(parts, step)
    batch = jax.device_put(batch, parts.partitioner.batch_shardings(batch))
    state, metrics = supervised.update(state, None, batch)
    if (step + 1) % _LOG_EVERY == 0 or step + 1 == spec.num_steps:
      loss = float(metrics['loss'].value())
      show(step + 1, loss)
      _log.info('warm start %d/%d  loss %.4f nats a token', step + 1,
                spec.num_steps, loss)
  return state.params


def demonstrations(parts: assembly.Parts, step: int):
  """The batch of one update: one demonstration a prompt, as a group of one.

  Examples follow one another through the training split, in reverse, so that
  RL, which starts at its other end, meets problems it has not seen worked.
  """
  e, spec = parts.experiment, parts.experiment.warm_start
  size = len(parts.task.examples('train'))
  start = step * spec.batch_size
  indices = size - 1 - np.arange(start, start + spec.batch_size) % size
  prompts = rollouts.encode(
      parts.task, parts.tokenizer, 'train', indices,
      limit=e.rollout.prompt_length)
  rng = random.Random(f'{e.seed}/{step}')
  completions = []
  for prompt in prompts:
    text = parts.task.demonstration(prompt.fields, rng, spec.slip_rate)
    tokens = np.append(
        parts.tokenizer.encode(text), parts.tokenizer.stop_ids[0])
    tokens = tokens[:e.rollout.completion_length].astype(np.int32)
    completions.append([Completion(
        tokens, np.zeros(len(tokens), np.float32), 'stop', 0)])
  ones = np.ones((len(prompts), 1))
  return batching.make_batch(
      prompts, completions, ones, ones,
      prompt_length=e.rollout.prompt_length,
      completion_length=e.rollout.completion_length)
