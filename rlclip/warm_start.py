"""Supervised learning on prompts and completions, before step 0.

The loss is on completions; prompts are masked. Each row is one pair, padded: no
packing, as attention of the model does not stop at a pair's end.
"""
import logging
import random

import numpy as np

from rlclip import assembly, learner, optimizers, rollouts
from rlclip.data import batching, tasks
from rlclip.types import Completion, Params

_log = logging.getLogger(__name__)
_LOG_EVERY = 50  # updates; of short runs, a tenth


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
    ValueError: if there are no demonstrations.
  """
  e, spec = parts.experiment, parts.experiment.warm_start
  task = assembly.warm_start_task(parts)
  optimizer = optimizers.make(
      spec.learning_rate, warmup_steps=max(1, spec.num_steps // 20),
      decay_steps=spec.num_steps + 1, schedule='cosine', max_grad_norm=1.0,
      b2=0.98)  # a warm start is short: 0.999 would average all of it
  supervised = learner.make(
      parts.model, learner.supervised_loss, optimizer, parts.partitioner,
      temperature=1.0, chunk=e.learner.logits_chunk)
  state = supervised.init(params)
  log_every = min(_LOG_EVERY, max(1, spec.num_steps // 10))
  for step in range(spec.num_steps):
    batch = parts.partitioner.put(demonstrations(parts, task, step))
    state, metrics = supervised.update(state, None, batch)
    if (step + 1) % log_every == 0 or step + 1 == spec.num_steps:
      loss = float(metrics['loss'].value())
      show(step + 1, loss)
      _log.info('warm start %d/%d  loss %.4f nats a token', step + 1,
                spec.num_steps, loss)
  return state.params


def demonstrations(parts: assembly.Parts, task: tasks.Task, step: int):
  """The batch of one update: one demonstration a prompt, as a group of one.

  The run's own examples follow one another through the training split, in
  reverse, so that RL, which starts at its other end where they are generated,
  meets problems it has not seen worked. Another task's come in the order of
  (seed, epoch). A completion that is too long is cut, and so has no end.
  """
  e, spec = parts.experiment, parts.experiment.warm_start
  start = step * spec.batch_size
  if spec.task:
    indices = tasks.indices_at(task, start, spec.batch_size, seed=e.seed)
  else:
    size = len(task.examples('train'))
    indices = size - 1 - np.arange(start, start + spec.batch_size) % size
  prompts, completions = [], []
  rng = random.Random(f'{e.seed}/{step}')
  examples = task.examples('train').take(indices)
  for prompt, example in zip(rollouts.encode(
      task, parts.tokenizer, 'train', indices,
      limit=e.rollout.prompt_length), examples):
    text = task.demonstration(example, rng, spec.slip_rate)
    tokens = np.append(parts.tokenizer.encode(text), parts.tokenizer.end_id)
    tokens = tokens[:e.rollout.completion_length].astype(np.int32)
    prompts.append(prompt)
    completions.append([Completion(
        tokens, np.zeros(len(tokens), np.float32), 'stop', 0)])
  ones = np.ones((len(prompts), 1))
  return batching.make_batch(
      prompts, completions, ones, ones,
      prompt_length=e.rollout.prompt_length,
      completion_length=e.rollout.completion_length)
