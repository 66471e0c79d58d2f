"""Products with weights: for many rows, and for the few of decoding."""
import math

from flax import linen as nn
import jax
import jax.numpy as jnp

from rlclip.models import config as config_lib

_PRECISE_PARTS = 8  # of a product, at the highest precision


class Linear(nn.Module):
  """x @ kernel (+ bias), kernel float32[in, out], computed in x's dtype."""
  features: int
  config: config_lib.ModelConfig
  axes: tuple[str, str]
  use_bias: bool = False

  @nn.compact
  def __call__(self, x):
    kernel = self.param('kernel', normal(self.config, self.axes),
                        (x.shape[-1], self.features))
    out = matmul(x, kernel)
    if self.use_bias:
      out = out + self.param('bias', _zeros(self.axes[1:]), (self.features,))
    return out.astype(x.dtype)


class LeftLinear(nn.Module):
  """kernel @ x (+ bias) for decoding, kernel [*out, in]; `out` may be many."""
  features: int | tuple[int, ...]
  config: config_lib.ModelConfig
  axes: tuple[str, str | tuple[str | None, ...]]  # of the input, of `out`
  use_bias: bool = False

  @nn.compact
  def __call__(self, x):
    whole = lambda given: given if isinstance(given, tuple) else (given,)
    features, axes = whole(self.features), whole(self.axes[1])
    kernel = self.param('kernel', normal(self.config, (*axes, self.axes[0])),
                        (*features, x.shape[-1]))
    out = left_matmul(kernel.reshape(-1, x.shape[-1]), x)
    out = out.reshape(*x.shape[:-1], *features)
    if self.use_bias:
      out = out + self.param('bias', _zeros(axes), features)
    return out.astype(x.dtype)


def matmul(x, kernel):
  """x [..., in] @ kernel [in, out] in x's dtype, float32 out.

  Tokens are flattened first: the backward products of a 3-D operand are far
  slower on CPUs. Under `jax.default_matmul_precision('highest')` a product is
  the sum of partial ones: XLA's CPU kernels add up all of `in` in one
  float32 accumulator, whatever precision is asked, and that is most of their
  error. Slower, so for comparisons only.
  """
  flat, kernel = x.reshape(-1, x.shape[-1]), kernel.astype(x.dtype)
  size = x.shape[-1]
  parts = 1
  if jax.config.jax_default_matmul_precision == 'highest':
    parts = math.gcd(size, _PRECISE_PARTS)
  out = sum(
      jax.lax.dot(flat[:, i:i + size // parts], kernel[i:i + size // parts],
                  preferred_element_type=jnp.float32)
      for i in range(0, size, size // parts))
  return out.reshape(*x.shape[:-1], kernel.shape[-1])


def left_matmul(kernel, x):
  """kernel [out, in], x [..., in] -> float32[..., out], for few rows of x.

  With few rows a product costs what it takes to bring the weights into
  registers. XLA's CPU kernels repack a right operand, and not a left one; and
  a product that is fused with what stands around it is far slower.
  """
  barrier = jax.lax.optimization_barrier
  flat = barrier(x.reshape(-1, x.shape[-1]))
  out = jax.lax.dot_general(
      kernel.astype(x.dtype), flat, (((1,), (1,)), ((), ())),
      preferred_element_type=jnp.float32)
  return barrier(out).T.reshape(*x.shape[:-1], kernel.shape[0])


def normal(config: config_lib.ModelConfig, axes):
  """Initializer of a weight with these logical axes."""
  return nn.with_partitioning(
      nn.initializers.normal(config.initializer_range), axes)


def _zeros(axes):
  return nn.with_partitioning(nn.initializers.zeros, axes)
