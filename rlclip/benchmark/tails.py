"""Continuous against static batching, where few completions are long."""
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.benchmark import measure, workload
from rlclip.models import transformer
from rlclip.sampler import engine
from rlclip.types import Request, SamplingSpec

_NUM_SLOTS, _NUM_BATCHES, _GROUP = 32, 8, 8
_MEAN, _SPREAD, _LONGEST = 64, 1.0, 512
_REPEATS = 3


def lengths(count: int, seed: int = 0) -> np.ndarray:
  """Lognormal lengths in tokens, int[count], mean 64 and at most 512.

  The shape that lengths of reasoning have; the mean is made exact.
  """
  rng = np.random.default_rng(seed)
  drawn = rng.lognormal(0.0, _SPREAD, count)
  scale = _MEAN / drawn.mean()
  for _ in range(20):  # what is cut at the limit is given to the others
    cut = np.clip(drawn * scale, 1, _LONGEST)
    scale *= _MEAN / cut.mean()
  return np.rint(cut).astype(int)


def run(options: measure.Options) -> measure.Result:
  """Times the same requests, all at once and a batch of slots at a time.

  Returns:
    The Result; 'speedup' is the static median over the continuous one.
  """
  work, dtype = workload.WORKLOADS['tiny'], options.dtype or 'float32'
  sampler = engine.Engine(
      work.model, seed=0, num_slots=_NUM_SLOTS, max_prompt=work.prompt_length,
      max_tokens=_LONGEST, dtype=jnp.dtype(dtype))
  params = transformer.make(work.model).init(jax.random.key(0))
  sampler.load_weights(params, 0)
  count = _NUM_SLOTS * _NUM_BATCHES
  longest = lengths(count)
  rng = np.random.default_rng(1)
  prompts = rng.integers(
      2, work.model.vocab_size, (count // _GROUP, work.prompt_length), np.int32)
  requests = [
      Request(i, prompts[i // _GROUP], SamplingSpec(int(n), ()))
      for i, n in enumerate(longest)]
  sampler.warm_up(_GROUP)

  def static(_):
    for i in range(0, count, _NUM_SLOTS):
      sampler.generate(requests[i:i + _NUM_SLOTS])

  continuous = lambda _: sampler.generate(requests)
  repeats = options.repeats or _REPEATS
  times = {'continuous': measure.measure(continuous, [None], repeats),
           'static': measure.measure(static, [None], repeats)}
  for t in times.values():
    t['tok_s'] = int(longest.sum()) / t['median_s']
  return measure.result(
      'tails', dtype, times,
      info={'num_slots': _NUM_SLOTS, 'group_size': _GROUP, 'requests': count,
            'mean_length': float(longest.mean()),
            'longest': int(longest.max())},
      speedup=times['static']['median_s'] / times['continuous']['median_s'])


def table(result: measure.Result) -> str:
  """A line a way of batching, and their ratio."""
  return (f'{workload.table(result)}\ncontinuous batching gives '
          f'{result["speedup"]:.2f} times the tokens of static batching')


measure.ITEMS.register('tails')(measure.Item(run, table))
