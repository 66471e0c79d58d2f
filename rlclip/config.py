"""From an ml_collections config to frozen, checked dataclasses.

`resolve` is the one place where a run's settings are read and checked against
one another. After it, nothing reads a config and nothing writes one.
"""
import dataclasses
import difflib
import types as python_types
import typing
from typing import Any, Mapping

from rlclip import algorithms
from rlclip.losses import LossSpec


@dataclasses.dataclass(frozen=True)
class Architecture:
  family: str
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  intermediate_size: int
  max_positions: int


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  path: str
  dtype: str
  remat: str
  architecture: Architecture


@dataclasses.dataclass(frozen=True)
class TaskSpec:
  name: str
  data_dir: str
  options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class WarmStart:
  num_steps: int
  batch_size: int
  learning_rate: float
  slip_rate: float


@dataclasses.dataclass(frozen=True)
class Algorithm:
  name: str
  delta: float | None
  eps_low: float | None
  eps_high: float | None
  beta: float | None
  anchor: str | None


@dataclasses.dataclass(frozen=True)
class Rollout:
  num_prompts: int
  group_size: int
  prompt_length: int
  completion_length: int
  temperature: float
  num_slots: int
  steps_per_round: int


@dataclasses.dataclass(frozen=True)
class Update:
  num_mini_batches: int
  num_epochs: int
  num_micro_batches: int
  logits_chunk: int
  drop_truncated: bool


@dataclasses.dataclass(frozen=True)
class Optimizer:
  learning_rate: float
  schedule: str
  warmup_steps: int
  b1: float
  b2: float
  epsilon: float
  weight_decay: float
  max_grad_norm: float


@dataclasses.dataclass(frozen=True)
class MeshSpec:
  data: int
  fsdp: int
  tensor: int


@dataclasses.dataclass(frozen=True)
class Reward:
  num_workers: int
  deadline: float
  on_failure: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
  every: int
  tasks: tuple[str, ...]
  num_problems: int
  num_samples: int
  temperature: float
  top_p: float
  top_k: int


@dataclasses.dataclass(frozen=True)
class CheckpointSpec:
  every: int
  keep_last: int
  keep_best: bool


@dataclasses.dataclass(frozen=True)
class Logging:
  tensorboard: bool
  wandb_project: str


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A run's settings; configs/default.py says what each one means."""
  seed: int
  num_steps: int
  model: ModelSpec
  task: TaskSpec
  warm_start: WarmStart
  algorithm: Algorithm
  rollout: Rollout
  update: Update
  optimizer: Optimizer
  mesh: MeshSpec
  reward: Reward
  evaluation: Evaluation
  checkpoint: CheckpointSpec
  logging: Logging

  @property
  def num_rows(self) -> int:
    """N, completions a step."""
    return self.rollout.num_prompts * self.rollout.group_size

  @property
  def num_slots(self) -> int:
    return self.rollout.num_slots or self.num_rows

  @property
  def updates_per_step(self) -> int:
    return self.update.num_mini_batches * self.update.num_epochs

  @property
  def loss_spec(self) -> LossSpec:
    """The point in the space of rules, overrides applied."""
    overrides = dataclasses.asdict(self.algorithm)
    name = overrides.pop('name')
    return algorithms.get(
        name, **{k: v for k, v in overrides.items() if v is not None})

  def sizes(self) -> dict[str, int]:
    """What a step amounts to, for the first lines of a run."""
    r = self.rollout
    return {
        'prompts a step': r.num_prompts,
        'completions a step': self.num_rows,
        'optimizer updates a step': self.updates_per_step,
        'completions an update': self.num_rows // self.update.num_mini_batches,
        'tokens a step, at most':
            r.num_prompts * r.prompt_length
            + self.num_rows * r.completion_length,
        'optimizer updates in all': self.num_steps * self.updates_per_step,
    }


def resolve(config: Mapping[str, Any]) -> Experiment:
  """Checks a config's keys, types and combinations.

  Args:
    config: a ConfigDict or nested dict with exactly the keys of
      configs/default.py.

  Returns:
    The Experiment.

  Raises:
    ValueError: what was expected, what came, and what to do.
  """
  experiment = _build(Experiment, config, 'config')
  _check(experiment)
  return experiment


def as_dict(experiment: Experiment) -> dict[str, Any]:
  """Plain nested dict, for config.json."""
  return dataclasses.asdict(experiment)


def _build(kind, values, path):
  """Fills a dataclass from a mapping, exactly and with the right types."""
  hints = typing.get_type_hints(kind)
  for key in values:
    if key not in hints:
      close = difflib.get_close_matches(key, hints, n=1)
      hint = f' Did you mean {path}.{close[0]}?' if close else ''
      raise ValueError(
          f'Unknown key {path}.{key}.{hint} Known: {", ".join(hints)}.')
  missing = [key for key in hints if key not in values]
  if missing:
    raise ValueError(
        f'Missing {path}.{missing[0]}. Start from configs/default.py, which '
        f'names every key.')
  return kind(**{
      key: _convert(hint, values[key], f'{path}.{key}')
      for key, hint in hints.items()})


def _convert(hint, value, path):
  """Checks one value against its type; int passes for float."""
  if dataclasses.is_dataclass(hint):
    return _build(hint, value, path)
  if typing.get_origin(hint) is tuple:
    if isinstance(value, str):
      value = tuple(filter(None, value.split(',')))
    return tuple(_convert(typing.get_args(hint)[0], v, path) for v in value)
  if typing.get_origin(hint) is python_types.UnionType:
    if value is None:
      return None
    return _convert(typing.get_args(hint)[0], value, path)
  if hint is float and isinstance(value, int) and not isinstance(value, bool):
    return float(value)
  if hint in (bool, int, float, str):
    if type(value) is not hint:
      raise ValueError(
          f'{path} must be of type {hint.__name__}, got {value!r} of type '
          f'{type(value).__name__}.')
    return value
  return dict(value)


def _check(e: Experiment):
  """Every check that needs more than one key, or a range."""
  u, r, v = e.update, e.rollout, e.evaluation
  per_mini_batch = r.num_prompts // max(u.num_mini_batches, 1)
  rules = (
      (e.num_steps >= 0, 'num_steps', '0 or more', e.num_steps),
      (e.model.dtype in ('float32', 'bfloat16'), 'model.dtype',
       'float32 or bfloat16', e.model.dtype),
      (e.model.remat in ('none', 'layer'), 'model.remat', 'none or layer',
       e.model.remat),
      (r.num_prompts >= 1, 'rollout.num_prompts', '1 or more', r.num_prompts),
      (r.group_size >= 1, 'rollout.group_size', '1 or more', r.group_size),
      (r.prompt_length >= 1, 'rollout.prompt_length', '1 or more',
       r.prompt_length),
      (r.completion_length >= 1, 'rollout.completion_length', '1 or more',
       r.completion_length),
      (r.temperature > 0, 'rollout.temperature',
       'more than 0 (greedy rollouts have no ratio to clip)', r.temperature),
      (r.num_slots >= 0, 'rollout.num_slots', '0 (all) or more', r.num_slots),
      (r.steps_per_round >= 1, 'rollout.steps_per_round', '1 or more',
       r.steps_per_round),
      (u.num_epochs >= 1, 'update.num_epochs', '1 or more', u.num_epochs),
      (u.num_mini_batches >= 1 and r.num_prompts % u.num_mini_batches == 0,
       'update.num_mini_batches',
       f'a divisor of rollout.num_prompts = {r.num_prompts}',
       u.num_mini_batches),
      (u.num_micro_batches >= 1 and per_mini_batch % u.num_micro_batches == 0,
       'update.num_micro_batches',
       f'a divisor of the {per_mini_batch} prompts of a mini-batch',
       u.num_micro_batches),
      (u.logits_chunk >= 1, 'update.logits_chunk', '1 or more',
       u.logits_chunk),
      (e.optimizer.learning_rate > 0, 'optimizer.learning_rate',
       'more than 0', e.optimizer.learning_rate),
      (e.optimizer.schedule in ('constant', 'cosine', 'linear'),
       'optimizer.schedule', 'constant, cosine or linear',
       e.optimizer.schedule),
      (e.warm_start.num_steps >= 0, 'warm_start.num_steps', '0 or more',
       e.warm_start.num_steps),
      (0 <= e.warm_start.slip_rate < 1, 'warm_start.slip_rate',
       'at least 0 and less than 1', e.warm_start.slip_rate),
      (e.warm_start.num_steps == 0 or not e.model.path, 'warm_start.num_steps',
       '0 where model.path gives pretrained weights', e.warm_start.num_steps),
      (e.reward.num_workers >= 1, 'reward.num_workers', '1 or more',
       e.reward.num_workers),
      (e.reward.deadline > 0, 'reward.deadline', 'more than 0 seconds',
       e.reward.deadline),
      (e.reward.on_failure in ('none', 'zero'), 'reward.on_failure',
       'none or zero', e.reward.on_failure),
      (v.every >= 0, 'evaluation.every', '0 or more', v.every),
      (v.num_problems >= 0, 'evaluation.num_problems', '0 (all) or more',
       v.num_problems),
      (v.num_samples >= 1, 'evaluation.num_samples', '1 or more',
       v.num_samples),
      (v.temperature > 0 or v.num_samples == 1, 'evaluation.num_samples',
       '1 where evaluation.temperature is 0: greedy samples are all the same',
       v.num_samples),
      (e.checkpoint.every >= 1, 'checkpoint.every', '1 or more',
       e.checkpoint.every),
      (e.checkpoint.keep_last >= 1, 'checkpoint.keep_last', '1 or more',
       e.checkpoint.keep_last),
      (bool(e.model.path) or r.prompt_length + r.completion_length
       <= e.model.architecture.max_positions,
       'model.architecture.max_positions',
       f'at least prompt_length + completion_length = '
       f'{r.prompt_length + r.completion_length}',
       e.model.architecture.max_positions),
  )
  for holds, key, expected, got in rules:
    if not holds:
      raise ValueError(
          f'config.{key} must be {expected}, got {got!r}. Change it in the '
          f'config file or with --config.{key}=.')
  e.loss_spec  # an unknown algorithm or override stops here
