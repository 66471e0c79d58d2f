"""Builds the parts of a run from its Experiment, for training and tools."""
import functools
import os
import pathlib
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import jax
import jax.numpy as jnp

from rlclip import checkpoint
from rlclip import config as config_lib
from rlclip import evaluate
from rlclip import learner as learner_lib
from rlclip import lora, losses, optimizers, partitioning, rollouts, workdir
from rlclip.data import report, tasks
from rlclip.data import tokenizer as tokenizer_lib
from rlclip.models import config as model_config
from rlclip.models import huggingface, transformer
from rlclip.rewards import extraction, golds
from rlclip.rewards import pool as pool_lib
from rlclip.rewards import shaping
from rlclip.sampler import engine, fleet, hosts, remote
from rlclip.types import Params, Prompt, Sampler, SamplingSpec, TrainState

_CHECKED = 1 << 16  # training rows looked at
_TESTS = 1 << 11  # test problems compared with them, where not all are asked
_GOLD_SECONDS = 10.0
# Completions between two signs of an evaluation's progress, in numbers of
# slots: fewer leave more slots empty while the last of them are drawn.
_SLOTFULS_SHOWN = 4


class Parts(NamedTuple):
  """What a run works with, before any weights."""
  experiment: config_lib.Experiment
  task: tasks.Task
  tokenizer: tokenizer_lib.Tokenizer
  partitioner: partitioning.Partitioner
  model: transformer.Model
  loss_spec: losses.LossSpec
  learner: learner_lib.Learner
  sampler: Sampler


def build(experiment: config_lib.Experiment) -> Parts:
  """Makes mesh, model, learner, sampler, task and tokenizer.

  Raises:
    ValueError: where the parts do not fit one another.
  """
  e = experiment
  task = get_task(e, e.task.name, e.task.options)
  tokenizer = (tokenizer_lib.load(e.model.path) if e.model.path else
               tokenizer_lib.character_tokenizer(task.alphabet))
  if e.task.drop:
    task = report.without(
        task, tokenizer, drop=e.task.drop, limit=e.rollout.prompt_length,
        tests=functools.partial(_test_examples, e, task))
  architecture = _architecture(e, tokenizer)
  mesh = partitioning.make(e.mesh.data, e.mesh.fsdp, e.mesh.tensor)
  dtype = jnp.dtype(e.model.dtype)
  model = transformer.make(
      architecture, dtype=dtype, remat=e.model.remat,
      constrain=mesh.constrain)
  spec, adapters = e.loss_spec, e.model.lora
  learner = learner_lib.make(
      model, losses.make(spec), optimizer(e), mesh,
      temperature=e.rollout.temperature,
      num_micro_batches=e.learner.num_micro_batches,
      chunk=e.learner.logits_chunk, statistics=spec.needs, dials=spec.dials,
      trainable=lora.make(adapters.rank, alpha=adapters.alpha,
                          modules=adapters.modules, seed=e.seed))
  sampler = _SAMPLERS[e.sampler.kind](e, architecture, tokenizer, mesh)
  return Parts(e, task, tokenizer, mesh, model, spec, learner, sampler)


def get_task(experiment: config_lib.Experiment, name: str,
             options: Mapping[str, Any] = {}) -> tasks.Task:
  """A task, told where the run's data lies if it reads any."""
  given = experiment.task.data_dir
  where = given and 'data_dir' in tasks.options_of(name)
  return tasks.get(
      name, **{**({'data_dir': given} if where else {}), **options})


def optimizer(experiment: config_lib.Experiment):
  """The RL optimizer; a schedule ends with the run."""
  o = experiment.optimizer
  return optimizers.make(
      o.learning_rate, name=o.name, multipliers=o.multipliers,
      state_dtype=o.state_dtype, warmup_steps=o.warmup_steps,
      schedule=o.schedule,
      decay_steps=experiment.num_steps * experiment.updates_per_step,
      b1=o.b1, b2=o.b2, epsilon=o.epsilon, weight_decay=o.weight_decay,
      max_grad_norm=o.max_grad_norm)


def learning_rate(experiment: config_lib.Experiment, update: int) -> float:
  """What the optimizer's schedule is at an update, counted from 0."""
  o = experiment.optimizer
  return float(optimizers.rate_schedule(
      o.learning_rate, o.warmup_steps,
      experiment.num_steps * experiment.updates_per_step, o.schedule)(update))


def initial_params(parts: Parts) -> Params:
  """Pretrained weights, or random ones from the seed; laid on the mesh."""
  shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(parts))
  if parts.experiment.model.path:
    return huggingface.load(parts.experiment.model.path, shardings)[1]
  init = jax.jit(parts.model.init, out_shardings=shardings)
  return init(jax.random.key(parts.experiment.seed))


def restored_params(
    parts: Parts, path: str | os.PathLike, step: int | None = None
) -> tuple[int, Params]:
  """The step and the model's weights in a run's checkpoint, on the mesh.

  Args:
    parts: of the run.
    path: the run's folder.
    step: None takes the newest.
  """
  keeper = checkpoint.Checkpointer(
      workdir.RunFolder(pathlib.Path(path)).checkpoints, read_only=True)
  step, params, _ = keeper.restore_params(abstract_state(parts).params, step)
  keeper.close()
  return step, parts.learner.weights(params)


def abstract_params(parts: Parts) -> Params:
  """Shapes, dtypes and shardings of the model's weights."""
  shapes = jax.eval_shape(parts.model.init, jax.random.key(0))
  return _laid(shapes, parts.partitioner.tree_shardings(
      parts.model.axes, shapes))


def abstract_state(parts: Parts) -> TrainState:
  """Shapes, dtypes and shardings of the train state, to restore into."""
  shapes = jax.eval_shape(
      lambda key: parts.learner.init(parts.model.init(key)),
      jax.random.key(0))
  return _laid(shapes, parts.learner.shardings)


def _laid(shapes, shardings):
  return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings)


def pool(experiment: config_lib.Experiment, reward: str,
         also: Sequence[str] = ()) -> pool_lib.Pool:
  """Processes for a task's reward, and for others, 'name=weight' each."""
  r = experiment.reward
  others = (text.rpartition('=') for text in also)
  return pool_lib.Pool(
      {reward: 1.0, **{name: float(weight) for name, _, weight in others}},
      num_workers=r.num_workers, deadline_s=r.deadline,
      on_failure=r.on_failure)


def penalty(experiment: config_lib.Experiment):
  """Lengths in tokens -> what advantages take off for them; None for none."""
  r = experiment.reward
  return functools.partial(
      shaping.overlong_penalty,
      max_length=experiment.rollout.completion_length,
      buffer=r.overlong_buffer, factor=r.overlong_factor
  ) if r.overlong_buffer else None


def evaluation_tasks(parts: Parts) -> dict[str, tasks.Task]:
  """The training task, where it has a test split, and then the others.

  Raises:
    ValueError: nothing to evaluate on.
  """
  return _evaluation_tasks(parts.experiment, parts.task)


def warm_start_task(parts: Parts) -> tasks.Task:
  """The task whose prompts and completions a warm start learns from.

  Raises:
    ValueError: if it has no demonstrations.
  """
  w = parts.experiment.warm_start
  task = get_task(parts.experiment, w.task, w.options) if w.task else parts.task
  if task.demonstration is None:
    raise ValueError(
        f'config.warm_start.num_steps is {w.num_steps}, but the task '
        f'{task.name!r} has no demonstrations. Set it to 0, or name a task '
        f'that has them in config.warm_start.task.')
  return task


def check_data(
    parts: Parts, workers: pool_lib.Pool | None = None, *,
    budget_s: float = _GOLD_SECONDS) -> list[report.Report]:
  """Looks at the rows that training meets first.

  All of a data set of usual size; of an endless one, what takes seconds.

  Args:
    parts: of the run.
    workers: of the task's reward, to try gold answers; None tries none.
    budget_s: seconds to try gold answers for.

  Returns:
    Of the task, where there is RL, and of the warm start's, where it has one
    of its own or there is no RL.
  """
  e, r, w = (parts.experiment, parts.experiment.rollout,
             parts.experiment.warm_start)
  most = e.num_steps * r.num_prompts * (1 + r.max_refills)
  tests = _test_examples(e, parts.task)
  try_golds = workers and functools.partial(
      golds.check_examples, parts.task, workers=workers, budget_s=budget_s)
  met = [(parts.task, most, try_golds)] if most else []
  if w.num_steps and (w.task or not most):
    met.append((warm_start_task(parts), w.num_steps * w.batch_size, None))
  return [
      report.make(
          task, parts.tokenizer, limit=r.prompt_length, tests=tests,
          indices=_first_met(task, count, e.seed), check_golds=check)
      for task, count, check in met]


def _first_met(task, count, seed) -> list[int]:
  count = min(count, len(task.examples('train')), _CHECKED)
  # A mixture meets its small parts' rows several times.
  return list(dict.fromkeys(
      tasks.indices_at(task, 0, count, seed=seed).tolist()))


def check_lengths(reports: Sequence[report.Report]) -> None:
  """Stops where a prompt is longer than the sampler takes.

  Raises:
    ValueError: naming the first in the order of training.
  """
  for found in reports:
    for id, num_tokens in found.too_long:
      raise ValueError(
          f'The prompt of {found.task}/{found.split} example {id} has '
          f'{num_tokens} tokens, and the sampler takes {found.limit}; '
          f'{len(found.too_long)} of {found.num_checked} are longer. Raise '
          f'--config.rollout.prompt_length, or put too_long into '
          f'--config.task.drop.')


def test_prompts(parts: Parts, task: tasks.Task) -> list[Prompt]:
  """The first problems of a task's test split, as many as are asked for."""
  e = parts.experiment
  size = len(task.examples('test'))
  return rollouts.encode(
      task, parts.tokenizer, 'test',
      range(min(size, e.evaluation.num_problems or size)),
      limit=e.rollout.prompt_length)


def rollout_spec(parts: Parts) -> SamplingSpec:
  """Training draws from the policy itself: no top-p, no top-k."""
  r = parts.experiment.rollout
  return SamplingSpec(
      r.completion_length, parts.tokenizer.stop_ids, r.temperature)


def evaluation_spec(parts: Parts) -> SamplingSpec:
  v = parts.experiment.evaluation
  return SamplingSpec(
      parts.experiment.rollout.completion_length, parts.tokenizer.stop_ids,
      v.temperature, v.top_p, v.top_k)


def evaluate_task(
    parts: Parts, task: tasks.Task, pool: pool_lib.Pool, phase,
    show: Callable[[int, int], None] | None = None) -> list[evaluate.Answer]:
  """Answers to a task's test problems, with the sampler's weights.

  Args:
    parts: of the run; the sampler is asked, the learner and its state are not.
    task: one of `evaluation_tasks`.
    pool: of the task's reward.
    phase: `with phase(name):` times what stands in it.
    show: called now and then with the number of problems done and of tokens
      drawn; None asks for all answers at once, which is faster.
  """
  e = parts.experiment
  num_samples = e.evaluation.num_samples
  at_once = max(1, _SLOTFULS_SHOWN * e.num_slots // num_samples) if show else 0
  return evaluate.run(
      parts.sampler, pool, parts.tokenizer.decode, test_prompts(parts, task),
      evaluation_spec(parts), num_samples=num_samples, phase=phase,
      extract=extraction.get(task.reward), problems_at_once=at_once, show=show)


def _local(experiment, architecture, tokenizer, mesh) -> Sampler:
  """The engine; with several processes one in each, on its own devices."""
  e = experiment
  several = jax.process_count() > 1
  if several:
    mesh = partitioning.make(data=-1, devices=jax.local_devices())
  own = engine.Engine(
      architecture, seed=e.seed, num_slots=e.num_slots,
      max_prompt=e.rollout.prompt_length,
      max_tokens=e.rollout.completion_length,
      steps_per_round=e.rollout.steps_per_round,
      dtype=jnp.dtype(e.model.dtype), constrain=mesh.constrain,
      decode=tokenizer.decode)
  return hosts.Hosts(own) if several else own


def _remote(experiment, architecture, tokenizer, mesh) -> Sampler:
  """Waits for the servers, and refuses those that do not fit."""
  del mesh
  e, s = experiment, experiment.sampler
  if e.model.path:
    tokenizer_dir = huggingface.fetch(e.model.path)
  else:
    tokenizer_dir = os.path.join(s.weights_folder, 'tokenizer')
    tokenizer.save(tokenizer_dir)
  sampler = remote.Remote(
      architecture,
      remote.Served(s.urls, s.kind, s.model, s.weights_folder, tokenizer_dir,
                    s.dtype),
      seed=e.seed, max_prompt=e.rollout.prompt_length,
      max_tokens=e.rollout.completion_length,
      settings=fleet.Settings(
          timeout_s=s.timeout, reload_timeout_s=s.reload_timeout,
          retries=s.retries, patience_s=s.patience, in_flight=s.in_flight))
  sampler.connect()
  return sampler


def _evaluation_tasks(experiment, task):
  e = experiment
  own = {e.task.name: task} if 'test' in task.splits else {}
  others = {name: get_task(e, name)
            for name in e.evaluation.tasks}
  if not own and not others:
    raise ValueError(
        f'Expected something to evaluate on, got the task {e.task.name!r} '
        f'with the splits {list(task.splits)} and no config.evaluation.tasks. '
        f'Name some, as --config.evaluation.tasks=math500.')
  return {**own, **others}


def _test_examples(experiment, task):
  """By evaluation task, the examples that may be evaluated on."""
  asked = experiment.evaluation.num_problems
  found = {name: each.examples('test')
           for name, each in _evaluation_tasks(experiment, task).items()}
  return {
      name: some[:max(asked, _TESTS) if asked else len(some)]
      for name, some in found.items()}


def _architecture(experiment, tokenizer) -> model_config.ModelConfig:
  """The pretrained model's config, or the config's own for random weights."""
  e = experiment
  if not e.model.path:
    a = e.model.architecture
    return model_config.ModelConfig(
        family=a.family, vocab_size=tokenizer.vocab_size,
        hidden_size=a.hidden_size, num_layers=a.num_layers,
        num_heads=a.num_heads, num_kv_heads=a.num_kv_heads,
        head_dim=a.head_dim, intermediate_size=a.intermediate_size,
        max_positions=a.max_positions, qkv_bias=a.family == 'qwen2',
        qk_norm=a.family == 'qwen3')
  config = huggingface.read_config(e.model.path)
  total = e.rollout.prompt_length + e.rollout.completion_length
  if total > config.max_positions:
    raise ValueError(
        f'rollout.prompt_length + rollout.completion_length = {total} is more '
        f'than the {config.max_positions} positions of {e.model.path}. Lower '
        f'one of them.')
  return config


# By config.sampler.kind: (experiment, architecture, tokenizer, mesh) -> it.
_SAMPLERS = {'local': _local, 'vllm': _remote, 'sglang': _remote}
