"""The spine: from an Experiment to a trained, evaluated, resumable policy."""
import contextlib
import dataclasses
import logging
import os
from typing import Any, Mapping, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import assembly, checkpoint, closing
from rlclip import config as config_lib
from rlclip import config_checks, distributed, evaluate, metrics, pending
from rlclip import pipeline as pipeline_lib
from rlclip import profiling, progress
from rlclip import reference as reference_lib
from rlclip import rollouts, warm_start, workdir
from rlclip.data import bank, batching, tasks
from rlclip.types import Mean, Params

_log = logging.getLogger(__name__)


class NonfiniteGradient(FloatingPointError):
  """A gradient had a NaN or an infinity; the state on disk is good."""


class _Taken(NamedTuple):
  """What a run has used up; kept in its checkpoints."""
  place: int = 0  # prompts, in the order of rlclip.data.order
  num_tokens: int = 0  # trained on


def train(experiment: config_lib.Experiment, path: str | os.PathLike, *,
          in_thread: bool | None = None) -> dict[str, Any]:
  """Trains, or continues a run that ended early, in the folder `path`.

  Killed at any moment and called again with the same experiment, it goes on
  from the last checkpoint and ends as if it had never been killed.

  Args:
    experiment: the resolved config.
    path: the run's folder; see workdir.
    in_thread: whether the sampler has a thread of its own; None where
      `rollout.max_staleness` is above 0. It changes no result.

  Returns:
    The last step's metrics.

  Raises:
    NonfiniteGradient: with the step, and where the last good checkpoint is.
    ValueError: where experiment, data or folder do not fit one another.
  """
  config = config_lib.as_dict(experiment)
  shared = {**config, 'distributed': {}, 'packages': workdir.packages()}
  distributed.require_same(workdir.flatten(shared), 'config and packages')
  if distributed.is_primary():
    for name, size in experiment.sizes().items():
      print(f'{name:26} {size:>12,}')
  # A schedule that ends with the run is another one for another length, and
  # nothing is sampled beyond the end that a longer run could go on with.
  ends = (experiment.optimizer.schedule != 'constant'
          or experiment.rollout.max_staleness)
  fixed = {'num_steps'} if ends else {}
  may_differ = [key for key in workdir.MAY_DIFFER if key not in fixed]
  with workdir.open_run(path, config, may_differ=may_differ,
                        is_primary=distributed.is_primary()) as folder:
    distributed.exchange('opened')  # by process 0, before others look
    workdir.require_seen(folder)
    for warning in config_checks.warnings(experiment):
      _log.warning('%s', warning)
    parts = assembly.build(experiment)
    assembly.check_rows(parts)
    with _Run(parts, folder, in_thread) as run:
      run.start()
      run.loop()
      run.finish()
      return run.last


class _Run:
  """One process's work on a run; holds what has state on the host."""

  def __init__(self, parts: assembly.Parts, folder: workdir.RunFolder,
               in_thread: bool | None):
    e = parts.experiment
    self.parts, self.folder = parts, folder
    self.tasks = assembly.evaluation_tasks(parts)
    self.pools = {
        reward: assembly.pool(e, reward)
        for reward in {
            task.reward for task in (parts.task, *self.tasks.values())}}
    self.training_pool = (
        assembly.pool(e, parts.task.reward, e.reward.also) if e.reward.also
        else self.pools[parts.task.reward])
    self.main_task = next(iter(self.tasks))  # the run's own, where it has tests
    self.taken = _Taken()
    self.kept_reference = reference_lib.Reference(
        folder.path / 'reference', **dataclasses.asdict(e.reference))
    self.ahead = folder.path / 'ahead'
    self.last: dict[str, float] = {}
    self.phase = metrics.Phases()
    self.compilations = metrics.Compilations()
    self.checkpoints = checkpoint.Checkpointer(
        folder.checkpoints, keep_last=e.checkpoint.keep_last,
        keep_best=int(e.checkpoint.keep_best))
    self.profile = profiling.Window(
        folder.path / 'profile', e.logging.profile_from,
        e.logging.profile_steps * distributed.is_primary())
    self.writer = None
    self.pipeline = pipeline_lib.Pipeline(
        self._collect, parts.sampler.load_weights, num_steps=e.num_steps,
        max_staleness=e.rollout.max_staleness, in_thread=in_thread)

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    self.profile.close()
    if self.writer is not None:
      self.writer.close()
    self.compilations.close()
    if error is not None and distributed.several():
      return  # the rest may wait for a process that is no more
    self.pipeline.close()  # before the pools: its job may be scoring
    for pool in {*self.pools.values(), self.training_pool}:
      pool.close()
    self.checkpoints.close()

  # ------------------------------------------------------------- start

  def start(self):
    """Restores the newest checkpoint, or makes and saves step 0."""
    e, learner = self.parts.experiment, self.parts.learner
    begun = self.checkpoints.latest()
    if begun is None:
      # Gold answers are tried for a while, not for a number: by one process.
      assembly.log_data(
          self.parts, self.pools.get(self.parts.task.reward)
          if distributed.is_primary() else None)
      self._open_writer(keep_through=-1)
      params = assembly.initial_params(self.parts)
      if e.warm_start.num_steps:
        with self.phase('warm_start'):
          params = warm_start.run(self.parts, params)
      self.state = learner.init(params)
      del params  # the learner has its own copy
      self.step = 0
      if self.parts.loss_spec.needs_reference:
        base = learner.frozen(self.state.params)
        self.kept_reference.begin(
            self._weights() if base is None else base,
            held=base is not None)
      self._load_sampler()
      self.pipeline.begin(0, 0)
      self._close_step({})
    else:
      abstract = assembly.abstract_state(self.parts)
      restored = self.checkpoints.restore(abstract)
      self.step, self.state = restored.step, restored.state
      self.taken = _Taken(**restored.metadata['taken'])
      self._open_writer(keep_through=self.step)
      if self.parts.loss_spec.needs_reference:
        self.kept_reference.restore(
            assembly.abstract_params(self.parts), self.step,
            restored.metadata['reference'],
            learner.frozen(self.state.params))
      self._load_sampler()
      self.pipeline.begin(
          self.step, self.taken.place,
          self._restored_rollouts(restored.metadata))
      _log.info('Continuing from step %d.', self.step)

  # -------------------------------------------------------------- loop

  def loop(self):
    """Sample, reward, update, until the last step."""
    e = self.parts.experiment
    shown = {'reward': 'reward', 'pass@1': f'eval/{self.main_task}/pass@1',
             'clipped': 'clip_ratio/region_mean'}
    bar = progress.bar(e.num_steps, done=self.step, shown=shown)
    silent = contextlib.nullcontext(lambda step, values: None)
    with bar if distributed.is_primary() else silent as show:
      while self.step < e.num_steps:
        self.step += 1
        with self.profile.step(self.step):
          self._take_step()
        show(self.step, self.last)

  def _take_step(self):
    with self.phase('wait'):
      collected = self.pipeline.take()
    staleness = self._staleness(collected)
    updates = self._update(collected) | staleness
    updates |= self._count(collected, updates)
    self._load_sampler()
    self._close_step({**rollouts.statistics(collected), **updates})

  @property
  def reference(self) -> Params | None:
    """Where a penalty needs it, the reference policy."""
    return self.kept_reference.params

  def _open_writer(self, keep_through):
    if not distributed.is_primary():
      return
    project = self.parts.experiment.logging.wandb_project
    self.writer = metrics.Writer(
        self.folder, keep_through=keep_through,
        tensorboard=self.parts.experiment.logging.tensorboard,
        wandb={'project': project} if project else None)

  def _collect(self, place: int) -> rollouts.Collected:
    """One group of answers for each prompt of a step, or more groups."""
    parts, e = self.parts, self.parts.experiment
    recipe = self._recipe()

    def draw(skipped, count):
      # A place is taken once, so its requests have ids of their own.
      return rollouts.collect(
          parts.sampler, assembly.for_all(self.training_pool), recipe.decode,
          recipe.prompts_at(place + skipped, count), recipe.spec,
          group_size=e.rollout.group_size,
          first_id=(place + skipped) * e.rollout.group_size,
          phase=self.phase, penalty=recipe.penalty,
          max_error_frac=e.rollout.max_error_frac)

    return rollouts.collect_with_signal(
        draw, e.rollout.num_prompts, max_refills=e.rollout.max_refills)

  def _recipe(self) -> pending.Recipe:
    """What rollouts follow from, besides what is drawn and scored."""
    parts, e = self.parts, self.parts.experiment

    def prompts_at(place, count):
      return rollouts.encode(
          parts.task, parts.tokenizer, 'train',
          tasks.indices_at(parts.task, place, count, seed=e.seed),
          limit=e.rollout.prompt_length)

    return pending.Recipe(prompts_at, parts.tokenizer.decode,
                          assembly.rollout_spec(parts), assembly.penalty(e))

  def _restored_rollouts(self, metadata) -> list[rollouts.Collected]:
    """Those sampled ahead of a checkpoint; drops what it will sample again."""
    steps = metadata.get('pending', [])
    pending.keep(self.ahead, range(self.step + 1 + len(steps)))
    return pending.restore(self.ahead, steps, self._recipe())

  def _staleness(self, collected) -> dict[str, float]:
    limit = self.parts.experiment.rollout.max_staleness
    found = rollouts.staleness(collected, self.step - 1, limit=limit)
    return found if limit else {}

  def _update(self, collected: rollouts.Collected) -> dict[str, float]:
    """All optimizer updates of one rollout batch; writes it to the bank."""
    parts, e, spec = self.parts, self.parts.experiment, self.parts.loss_spec
    batch = rollouts.batch(
        collected, advantage=spec.advantage,
        prompt_length=e.rollout.prompt_length,
        completion_length=e.rollout.completion_length,
        drop_truncated=e.learner.drop_truncated)
    with self.phase('update'):
      if spec.needs_old:
        stats = parts.learner.score(
            self._weights(), parts.partitioner.put(batch))
        batch = batch._replace(old_logps=np.asarray(stats.logps))
      # The state is donated, so the weights of the batch are copied.
      anchor = (jax.tree.map(jnp.copy, self._weights())
                if spec.needs_anchor_policy else None)
      totals: list[Mapping[str, Mean]] = []
      for epoch in range(e.learner.num_epochs):
        rng = np.random.default_rng((e.seed, self.step, epoch))
        mini_batches = batching.minibatches(
            batch, e.learner.num_mini_batches,
            order=rng.permutation(e.rollout.num_prompts))
        for mini_batch in mini_batches:
          if e.learner.packing:
            mini_batch = batching.pack(
                mini_batch, e.learner.num_micro_batches)
          self.state, means = parts.learner.update(
              self.state, self.reference, parts.partitioner.put(mini_batch),
              anchor)
          totals.append(means)
      totals = jax.device_get(totals)  # waits for the updates
    self._check_finite(totals)
    if distributed.is_primary():
      self._write_bank(collected, batch)
    return metrics.to_floats(
        jax.tree.map(lambda *leaves: sum(leaves), *totals))

  def _write_bank(self, collected, batch):
    with self.phase('bank'):
      bank.write(
          self.folder.rollouts / bank.file_name(self.step),
          rollouts.bank_rows(collected, batch, self.step),
          run={'temperature': self.parts.experiment.rollout.temperature,
               'stop_ids': self.parts.tokenizer.stop_ids})

  def _count(self, collected, updates: dict[str, float]) -> dict[str, float]:
    """What the step took, and whether the policy becomes the reference."""
    e = self.parts.experiment
    self.taken = _Taken(
        self.taken.place + len(collected.groups),
        self.taken.num_tokens + collected.num_tokens)
    values = {
        'num_tokens': self.taken.num_tokens,
        # Of the step's last update.
        'learning_rate': assembly.learning_rate(
            e, self.step * e.updates_per_step - 1)}
    if self.reference is not None:
      values |= self.kept_reference.follow(
          self.step, updates['kl'], self._weights())
    return values

  def _weights(self) -> Params:
    """Those of the policy; they may be the state's own, which is donated."""
    return self.parts.learner.weights(self.state.params)

  def _load_sampler(self):
    with self.phase('sync'):
      self.pipeline.load(self._weights(), self.step)

  def _check_finite(self, totals):
    bad = [i for i, means in enumerate(totals)
           if means['grad_nonfinite'].total > 0]
    if bad:
      self.checkpoints.wait()
      raise NonfiniteGradient(
          f'The gradient of update {bad[0] + 1} of {len(totals)} in step '
          f'{self.step} is not finite. The last good checkpoint is '
          f'{self.folder.checkpoints / str(self.checkpoints.latest())}. Lower '
          f'--config.optimizer.learning_rate, or look at the batch in the '
          f'rollout bank.')

  # ------------------------------------------------- end of every step

  def _close_step(self, values: dict[str, float]):
    """Evaluates and checkpoints where it is time, and writes the metrics."""
    e = self.parts.experiment
    ends = self.step in (0, e.num_steps)
    if ends or (e.evaluation.every and self.step % e.evaluation.every == 0):
      with self.phase('eval'):
        values = {**values, **self.pipeline.run(self._evaluate)}
    self.last = {**values, **self.phase.take(), **self.compilations.take()}
    if self.writer is not None:
      self.writer.write(self.step, self.last)
    if ends or self.step % e.checkpoint.every == 0:
      with self.phase('checkpoint'):
        if self.writer is not None:
          self.writer.flush()
        main = f'eval/{self.main_task}/pass@1'
        metadata = {
            'config': config_lib.as_dict(e), 'versions': workdir.versions(),
            'taken': self.taken._asdict()}
        if self.reference is not None:
          self.kept_reference.save(self.checkpoints)
          metadata['reference'] = self.kept_reference.metadata()
        if e.rollout.max_staleness:
          metadata['pending'] = self._save_rollouts()
        self.checkpoints.save(
            self.step, self.state, metadata,
            {'pass@1': values[main]} if main in values else None)

  def _save_rollouts(self) -> list[int]:
    """Keeps what was sampled ahead, for this checkpoint and those there are."""
    steps = pending.save(
        self.ahead, self.step, self.taken.place, self.pipeline.pending())
    span = range(1, 1 + self.parts.experiment.rollout.max_staleness)
    pending.keep(self.ahead, [
        at + i for at in (self.step, *self.checkpoints.steps()) for i in span])
    return steps

  def _evaluate(self) -> dict[str, float]:
    values = {}
    for name, task in self.tasks.items():
      result = assembly.evaluate_task(
          self.parts, task, assembly.for_all(self.pools[task.reward]),
          self.phase)
      if distributed.is_primary():
        evaluate.write(self.folder.evaluation(name, self.step), result)
      values |= {f'eval/{name}/{measure}': estimate.value
                 for measure, estimate in evaluate.summary(result).items()}
    return values

  # ------------------------------------------------------------ finish

  def finish(self):
    """Shows what the run did, and where everything lies."""
    self.checkpoints.wait()
    if not distributed.is_primary():
      return
    closing.show(
        self.folder, tuple(self.tasks), self.parts.experiment.num_steps,
        self.folder.checkpoints / str(self.checkpoints.latest()))
