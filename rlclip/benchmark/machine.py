"""What the machine gives: products by dtype, and memory bandwidth.

The best of several calls: these rates are what floors are counted with.
"""
import functools

import jax
import jax.numpy as jnp

from rlclip.benchmark import measure

_DTYPES = ('float32', 'bfloat16')
_REPEATS = 5


def product_rate(dtype: str, size: int, repeats: int = _REPEATS) -> dict:
  """Times [size, size] @ [size, size], float32 out; adds `flops_s`."""
  key = jax.random.key(0)
  operand = jax.random.normal(key, (size, size), jnp.dtype(dtype))
  product = jax.jit(functools.partial(
      jnp.matmul, preferred_element_type=jnp.float32))
  times = measure.measure(
      lambda x: product(x, x), (operand,), repeats)
  return {**times, 'flops_s': 2 * size**3 / times['min_s']}


def bandwidth(num_bytes: int, repeats: int = _REPEATS) -> dict:
  """Times x + 1 in place, read and written once each; adds `bytes_s`."""
  # Donated: a fresh result would be paid for page by page.
  add = jax.jit(lambda x: x + 1, donate_argnums=0)
  held = [jnp.zeros(num_bytes // 4, jnp.float32)]

  def step(_):
    held[0] = add(held[0])
    return held[0]
  times = measure.measure(step, (None, None), repeats)
  return {**times, 'bytes_s': 2 * held[0].nbytes / times['min_s']}


def run(options: measure.Options) -> measure.Result:
  """Measures with sizes that suit the backend."""
  small = jax.default_backend() == 'cpu'
  repeats = options.repeats or _REPEATS
  size, num_bytes = (2048, 1 << 28) if small else (8192, 1 << 31)
  times = {f'product/{dtype}': product_rate(dtype, size, repeats)
           for dtype in _DTYPES}
  times['bandwidth'] = bandwidth(num_bytes, repeats)
  return measure.result('machine', 'float32', times, info={'size': size})


def table(result: measure.Result) -> str:
  """A line a rate."""
  times = result['t']
  rate = lambda dtype: times[f'product/{dtype}']['flops_s'] / 1e9
  lines = [f'{dtype:9} products  {rate(dtype):10.1f} GFLOP/s'
           for dtype in _DTYPES]
  return '\n'.join([
      *lines,
      f'memory              {times["bandwidth"]["bytes_s"] / 1e9:10.1f} GB/s'])


measure.ITEMS.register('machine')(measure.Item(run, table))
