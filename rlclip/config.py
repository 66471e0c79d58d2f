"""From an ml_collections config to frozen, checked dataclasses.

`resolve` is the one place where a run's settings are read and checked against
one another. After it, nothing reads a config and nothing writes one.
"""
import dataclasses
import difflib
import types as python_types
import typing
from typing import Any, Mapping

from ml_collections import config_dict

from rlclip import algorithms, config_checks
from rlclip.losses import LossSpec, reduce


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
class Lora:
  rank: int
  alpha: float
  modules: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  path: str
  dtype: str
  remat: str
  attention: str
  lora: Lora
  architecture: Architecture


@dataclasses.dataclass(frozen=True)
class TaskSpec:
  name: str
  data_dir: str
  options: Mapping[str, Any]
  drop: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WarmStart:
  task: str
  options: Mapping[str, Any]
  num_steps: int
  batch_size: int
  learning_rate: float
  slip_rate: float


@dataclasses.dataclass(frozen=True)
class Algorithm:
  name: str
  bounds: str | None
  divergence: str | None
  delta: float | None
  eps_low: float | None
  eps_high: float | None
  cap: float | None
  penalty: str | None
  beta: float | None
  estimator: str | None
  toward: str | None
  gate: str | None
  level: str | None
  anchor: str | None
  mismatch: str | None
  reduction: str | None
  advantage: str | None
  entropy_bonus: float | None
  width_dial: str | None
  beta_dial: str | None


@dataclasses.dataclass(frozen=True)
class Rollout:
  num_prompts: int
  group_size: int
  prompt_length: int
  completion_length: int
  temperature: float
  num_slots: int
  steps_per_round: int
  max_refills: int
  max_staleness: int
  max_error_frac: float


@dataclasses.dataclass(frozen=True)
class SamplerSpec:
  kind: str
  urls: tuple[str, ...]
  model: str
  weights_folder: str
  dtype: str
  in_flight: int
  timeout: float
  reload_timeout: float
  retries: int
  patience: float


@dataclasses.dataclass(frozen=True)
class ReferenceSpec:
  every: int
  max_kl: float
  kl_decay: float


@dataclasses.dataclass(frozen=True)
class LearnerSpec:
  num_mini_batches: int
  num_epochs: int
  num_micro_batches: int
  packing: bool
  logits_chunk: int
  drop_truncated: bool


@dataclasses.dataclass(frozen=True)
class Optimizer:
  name: str
  learning_rate: float
  multipliers: tuple[str, ...]
  schedule: str
  warmup_steps: int
  state_dtype: str
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
class Distributed:
  coordinator: str
  num_processes: int
  process_id: int
  start_timeout: int
  heartbeat_timeout: int


@dataclasses.dataclass(frozen=True)
class Reward:
  num_workers: int
  deadline: float
  on_failure: str
  also: tuple[str, ...]
  overlong_buffer: int
  overlong_factor: float


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
  profile_from: int
  profile_steps: int


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
  sampler: SamplerSpec
  reference: ReferenceSpec
  learner: LearnerSpec
  optimizer: Optimizer
  mesh: MeshSpec
  distributed: Distributed
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
    return self.learner.num_mini_batches * self.learner.num_epochs

  @property
  def loss_spec(self) -> LossSpec:
    """The point in the space of rules, overrides applied."""
    overrides = dataclasses.asdict(self.algorithm)
    name = overrides.pop('name')
    spec = algorithms.get(
        name, **{k: v for k, v in overrides.items() if v is not None})
    if spec.reduction == reduce.SequenceSum():
      # The token budget, said out loud: batches are trimmed below it.
      budget = reduce.SequenceSum(float(self.rollout.completion_length))
      spec = dataclasses.replace(spec, reduction=budget)
    return spec

  def sizes(self) -> dict[str, int]:
    """What a step amounts to, for the first lines of a run."""
    r = self.rollout
    return {
        'prompts a step': r.num_prompts,
        'completions a step': self.num_rows,
        'optimizer updates a step': self.updates_per_step,
        'completions an update': self.num_rows // self.learner.num_mini_batches,
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
  if not isinstance(value, (Mapping, config_dict.ConfigDict)):
    raise ValueError(
        f'{path} must be a mapping, got {value!r} of type '
        f'{type(value).__name__}.')
  return _plain(value)


def _plain(value):
  """Options may nest, and config.json takes no ConfigDict."""
  if isinstance(value, (Mapping, config_dict.ConfigDict)):
    return {key: _plain(inner) for key, inner in value.items()}
  return value


def _check(e: Experiment):
  for holds, key, expected, got in config_checks.rules(e):
    if not holds:
      raise ValueError(
          f'config.{key} must be {expected}, got {got!r}. Change it in the '
          f'config file or with --config.{key}=.')
