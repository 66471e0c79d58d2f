"""The spine: from an Experiment to a trained, evaluated, resumable policy."""
import dataclasses
import logging
import os
from typing import Any, Mapping, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import assembly, checkpoint
from rlclip import config as config_lib
from rlclip import config_checks, evaluate, metrics, pending
from rlclip import pipeline as pipeline_lib
from rlclip import progress
from rlclip import reference as reference_lib
from rlclip import rollouts, warm_start, workdir
from rlclip.data import bank, batching, report, tasks
from rlclip.types import Mean, Params

_log = logging.getLogger(__name__)


class NonfiniteGradient(RuntimeError):
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
  for name, size in experiment.sizes().items():
    print(f'{name:26} {size:>12,}')
  # A schedule that ends with the run is another one for another length, and
  # nothing is sampled beyond the end that a longer run could go on with.
  ends = (experiment.optimizer.schedule != 'constant'
          or experiment.rollout.max_staleness)
  fixed = {'num_steps'} if ends else {}
  may_differ = [key for key in workdir.MAY_DIFFER if key not in fixed]
  with workdir.open_run(path, config_lib.as_dict(experiment),
                        may_differ=may_differ) as folder:
    for warning in config_checks.warnings(experiment):
      _log.warning('%s', warning)
    parts = assembly.build(experiment)
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
    self.writer = None
    self.pipeline = pipeline_lib.Pipeline(
        self._collect, parts.sampler.load_weights, num_steps=e.num_steps,
        max_staleness=e.rollout.max_staleness, in_thread=in_thread)

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    self.pipeline.close()  # before the pools: its job may be scoring
    for pool in {*self.pools.values(), self.training_pool}:
      pool.close()
    self.compilations.close()
    if self.writer is not None:
      self.writer.close()
    self.checkpoints.close()

  # ------------------------------------------------------------- start

  def start(self):
    """Restores the newest checkpoint, or makes and saves step 0."""
    e, learner = self.parts.experiment, self.parts.learner
    begun = self.checkpoints.latest()
    if begun is None:
      self._check_data()
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

  def _check_data(self):
    """Logs what is wrong with the data, before a warm start is paid for."""
    found = assembly.check_data(
        self.parts, self.pools.get(self.parts.task.reward))
    for each in found:
      for line in report.lines(each):
        _log.info('%s', line)
    assembly.check_lengths(found)

  # -------------------------------------------------------------- loop

  def loop(self):
    """Sample, reward, update, until the last step."""
    e = self.parts.experiment
    shown = {'reward': 'reward', 'pass@1': f'eval/{self.main_task}/pass@1',
             'clipped': 'clip_ratio/region_mean'}
    with progress.bar(e.num_steps, done=self.step, shown=shown) as show:
      while self.step < e.num_steps:
        self.step += 1
        with self.phase('wait'):
          collected = self.pipeline.take()
        staleness = self._staleness(collected)
        updates = self._update(collected) | staleness
        updates |= self._count(collected, updates)
        self._load_sampler()
        self._close_step({**rollouts.statistics(collected), **updates})
        show(self.step, self.last)

  @property
  def reference(self) -> Params | None:
    """Where a penalty needs it, the reference policy."""
    return self.kept_reference.params

  def _open_writer(self, keep_through):
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
          parts.sampler, self.training_pool, recipe.decode,
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
        stats = parts.learner.score(self._weights(), self._put(batch))
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
          self.state, means = parts.learner.update(
              self.state, self.reference, self._put(mini_batch), anchor)
          totals.append(means)
      totals = jax.device_get(totals)  # waits for the updates
    self._check_finite(totals)
    with self.phase('bank'):
      bank.write(
          self.folder.rollouts / bank.file_name(self.step),
          rollouts.bank_rows(collected, batch, self.step),
          run={'temperature': e.rollout.temperature,
               'stop_ids': parts.tokenizer.stop_ids})
    return metrics.to_floats(
        jax.tree.map(lambda *leaves: sum(leaves), *totals))

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

  def _put(self, batch):
    return jax.device_put(batch, self.parts.partitioner.batch_shardings(batch))

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
    self.writer.write(self.step, self.last)
    if ends or self.step % e.checkpoint.every == 0:
      with self.phase('checkpoint'):
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
          self.parts, task, self.pools[task.reward], self.phase)
      evaluate.write(self.folder.evaluation(name, self.step), result)
      values |= {f'eval/{name}/{measure}': estimate.value
                 for measure, estimate in evaluate.summary(result).items()}
    return values

  # ------------------------------------------------------------ finish

  def finish(self):
    """Shows what the run did, and where everything lies."""
    self.checkpoints.wait()
    rows = {}
    for task in self.tasks:
      before, after = (
          evaluate.summary(evaluate.read(self.folder.evaluation(task, step)))
          for step in (0, self.parts.experiment.num_steps))
      # One of them may have been made again, with other settings.
      rows |= {f'{task} {measure}': (before[measure], after[measure])
               for measure in after if measure in before}
    progress.show_comparison(rows)
    answers = evaluate.read(
        self.folder.evaluation(
            self.main_task, self.parts.experiment.num_steps))
    progress.show_samples([
        progress.Sample(a.prompt, a.completion, a.score) for a in answers[:2]])
    progress.show_paths({
        'metrics': self.folder.metrics,
        'TensorBoard': self.folder.tensorboard,
        'checkpoint': self.folder.checkpoints / str(self.checkpoints.latest()),
        'rollouts': self.folder.rollouts})
