"""One GRPO iteration of fixed shapes, part by part: rollout, scoring, update.

Qwen3's architecture with tied embeddings and random weights; every completion
has exactly the length given. `small` has SmolLM2-135M's shape.
"""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import algorithms
from rlclip import learner as learner_lib
from rlclip import losses, optimizers, partitioning
from rlclip.benchmark import measure
from rlclip.data import batching
from rlclip.models import config as model_config
from rlclip.models import transformer
from rlclip.sampler import engine
from rlclip.types import Batch, Completion, Request, SamplingSpec

_REPEATS = 3
_LEARNING_RATE, _MAX_NORM = 1e-6, 1.0


@dataclasses.dataclass(frozen=True)
class Workload:
  """Shapes of an iteration; all completions are `completion_length` long."""
  model: model_config.ModelConfig
  num_prompts: int
  group_size: int
  prompt_length: int
  completion_length: int

  @property
  def num_rows(self) -> int:
    return self.num_prompts * self.group_size


def _qwen3(vocab, hidden, layers, heads, kv_heads, head_dim, mlp):
  return model_config.ModelConfig(
      'qwen3', vocab, hidden, layers, heads, kv_heads, head_dim, mlp,
      qk_norm=True)


WORKLOADS = {
    'tiny': Workload(
        _qwen3(512, 128, 4, 4, 2, 32, 512), num_prompts=8, group_size=8,
        prompt_length=32, completion_length=64),
    'small': Workload(
        _qwen3(49152, 576, 30, 9, 3, 64, 1536), num_prompts=4, group_size=8,
        prompt_length=64, completion_length=64),
}


class Iteration:
  """The parts of an iteration, as calls that take the iteration's number."""

  def __init__(self, work: Workload, dtype: str):
    self._work = work
    c = work.model
    mesh = partitioning.make(1, 1, 1)
    self._model = transformer.make(c, dtype=jnp.dtype(dtype))
    rule = algorithms.get('grpo', beta=0.0)
    self._learner = learner_lib.make(
        self._model, losses.make(rule), optimizers.make(
            _LEARNING_RATE, max_grad_norm=_MAX_NORM),
        mesh, temperature=1.0)
    self._sampler = engine.Engine(
        c, seed=0, num_slots=work.num_rows, max_prompt=work.prompt_length,
        max_tokens=work.completion_length, dtype=jnp.dtype(dtype))
    params = jax.jit(self._model.init)(jax.random.key(0))
    self._state = self._learner.init(params)
    del params
    self._sampler.load_weights(self._state.params, 0)
    rng = np.random.default_rng(0)
    self._prompts = rng.integers(
        2, c.vocab_size, (work.num_prompts, work.prompt_length), np.int32)
    self._completions = None

  def rollout(self, number: int) -> list[Completion]:
    """Samples every group; no two iterations draw the same."""
    spec = SamplingSpec(self._work.completion_length, stop_ids=())
    first = number * self._work.num_rows
    self._completions = self._sampler.generate([
        Request(first + row, prompt, spec) for row, prompt in
        enumerate(np.repeat(self._prompts, self._work.group_size, 0))])
    return self._completions

  def logprob(self, number: int):
    """Log-probs and entropy of the completions, as of an old policy."""
    return self._learner.score(self._state.params, self._batch(number))

  def learner(self, number: int):
    """One optimizer update on all rows."""
    self._state, metrics = self._learner.update(
        self._state, None, self._batch(number))
    return metrics

  def iter_native(self, number: int):
    """Rollout, update, and the new weights back to the sampler."""
    self.rollout(number)
    metrics = self.learner(number)
    self._sampler.load_weights(self._state.params, number)
    return metrics

  def iter_full(self, number: int):
    """As iter_native, with old and reference log-probs computed as well."""
    self.rollout(number)
    self.logprob(number), self.logprob(number)
    metrics = self.learner(number)
    self._sampler.load_weights(self._state.params, number)
    return metrics

  def ragged(self, number: int):
    """One update on completions of uneven lengths, padded."""
    self._state, metrics = self._learner.update(
        self._state, None, self._uneven(number))
    return metrics

  def packed(self, number: int):
    """The same update, packed."""
    self._state, metrics = self._learner.update(
        self._state, None, batching.pack(self._uneven(number)))
    return metrics

  def _uneven(self, number: int) -> Batch:
    """Lognormal lengths, as in the item `tails`; the median is a third."""
    batch, size = self._batch(number), self._work.completion_length
    # One draw for all, so that the packed rows are as many.
    lengths = np.random.default_rng(0).lognormal(
        np.log(size / 3), 0.8, (self._work.num_rows, 1))
    return batch._replace(
        mask=np.arange(size) < np.clip(lengths, 1, size).astype(int))

  def _batch(self, number: int) -> Batch:
    work, rng = self._work, np.random.default_rng(number)
    if self._completions is None:
      shape = work.num_rows, work.completion_length
      completions = rng.integers(2, work.model.vocab_size, shape, np.int32)
      logps = np.full(shape, -np.log(work.model.vocab_size), np.float32)
    else:
      completions = np.stack([c.tokens for c in self._completions])
      logps = np.stack([c.logps for c in self._completions])
    rewards = rng.integers(
        0, 2, (work.num_prompts, work.group_size)).astype(np.float32)
    mean = np.repeat(rewards.mean(-1), work.group_size)
    return Batch(
        prompts=self._prompts, completions=completions,
        prompt_lengths=np.full(
            work.num_prompts, work.prompt_length, np.int32),
        mask=np.ones(completions.shape, bool), behavior_logps=logps,
        old_logps=logps, advantages=rewards.reshape(-1) - mean,
        rewards=rewards.reshape(-1), group_mean=mean,
        group_size=np.full(work.num_rows, work.group_size, np.float32),
        truncated=np.zeros(work.num_rows, bool))


PARTS = ('rollout', 'logprob', 'learner', 'iter_native', 'iter_full',
         'ragged', 'packed')


def run(name: str, options: measure.Options) -> measure.Result:
  """Times the parts of one workload.

  Raises:
    ValueError: for a part that is not there.
  """
  wrong = set(options.only) - set(PARTS)
  if wrong:
    raise ValueError(f'Unknown parts {sorted(wrong)} of the item {name!r}. '
                     f'Known: {", ".join(PARTS)}.')
  work, dtype = WORKLOADS[name], options.dtype or 'float32'
  iteration, times = Iteration(work, dtype), {}
  counter = iter(range(1 << 30))
  tokens = work.num_rows * work.completion_length
  for part in (p for p in PARTS if not options.only or p in options.only):
    step = getattr(iteration, part)
    times[part] = measure.measure(
        lambda _: step(next(counter)), (None, None),
        options.repeats or _REPEATS)
    times[part]['tok_s'] = tokens / times[part]['median_s']
  return measure.result(name, dtype, times,
                        info=dataclasses.asdict(work))


def table(result: measure.Result) -> str:
  """A line a part."""
  lines = [f'{"part":12} {"median s":>9} {"min s":>9} {"cpu s":>9} '
           f'{"first s":>9} {"sampled tok/s":>14} {"others":>7} {"MB":>7}']
  for part, t in result['t'].items():
    lines.append(
        f'{part:12} {t["median_s"]:9.3f} {t["min_s"]:9.3f} {t["cpu_s"]:9.3f} '
        f'{t["first_s"]:9.1f} {t["tok_s"]:14.0f} {t["other_cores"]:7.2f} '
        f'{t["peak_rss_mb"]:7.0f}')
  return '\n'.join(lines)


def _register(name: str):
  measure.ITEMS.register(name)(measure.Item(
      lambda options: run(name, options), table))


for _name in WORKLOADS:
  _register(_name)
