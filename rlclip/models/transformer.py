"""One decoder for Llama, Qwen2/2.5 and Qwen3: Linen modules, one layer each.

A call attends to the key-value blocks it is given and to its own tokens
causally, and returns its own keys and values: prefill, and scoring of a whole
group against one shared prompt. In decoding each row's keys and values join
those before them in a cache, and the call returns the cache.
"""
import functools
import math
from typing import Callable, NamedTuple, Sequence

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.models import config as config_lib
from rlclip.types import Array, Params

_PRECISE_PARTS = 8  # of a product, at the highest precision
Constrain = Callable[[Array, Sequence[str | None]], Array]


class KVBlock(NamedTuple):
  """Keys and values of earlier tokens, rotary embedding applied.

  One block may serve several rows: with B rows of queries and R rows here,
  query row b attends to block row b // (B / R), or to the one that `members`
  names. A block row of length 0 is as good as none.
  """
  keys: Array  # [R, K, S, d]; stacked [L, R, K, S, d], or a tuple of L arrays
  values: Array  # like keys
  lengths: Array  # int32[R]: entries before this index are valid
  members: 'Members | None' = None


class Members(NamedTuple):
  """Which query rows attend to which block row, in any order."""
  rows: Array  # int32[R, n]: the query rows of a block row; B where none
  places: Array  # int32[B]: r * n + j where rows[r, j] is b; else anything


class Model(NamedTuple):
  """A decoder as pure functions over a plain parameter tree."""
  config: config_lib.ModelConfig
  init: Callable[[Array], Params]  # key -> params, float32
  apply: Callable[..., tuple]  # see make()
  unembed: Callable[[Params, Array], Array]  # hidden -> float32 logits
  axes: Params  # params' logical axis names, a tuple a leaf


def make(config: config_lib.ModelConfig, *, dtype=jnp.float32,
         decoding: bool = False, remat: str = 'none',
         constrain: Constrain = lambda array, axes: array) -> Model:
  """Builds the model's functions.

  Args:
    config: the architecture.
    dtype: of activations and products' operands; accumulation, softmax, norms
      and logits are float32.
    decoding: False stacks the layers under one scan, so that one layer is
      compiled; True is the form that decodes fast: see decoding_params.
    remat: 'none', or 'layer' to recompute each layer in the backward pass.
    constrain: lays an activation on the mesh by logical axis names.

  Returns:
    Model, where `apply(params, tokens int32[B, T], positions int32[B, T],
    blocks: Sequence[KVBlock] = (), cache: KVBlock | None = None) ->
    (hidden [B, T, D], keys, values)`; keys and values are those of `tokens`,
    laid out like a KVBlock's. With a cache, one row a row of tokens, T is 1,
    the new keys are written at its lengths, and the whole is returned.

  Raises:
    ValueError: on an unknown remat policy.
  """
  if remat not in ('none', 'layer'):
    raise ValueError(f"remat must be 'none' or 'layer', got {remat!r}.")
  module = Transformer(config, dtype, decoding, remat, constrain)
  tokens = jnp.zeros((1, 1), jnp.int32)

  def init(key):
    return nn.unbox(module.init(key, tokens, tokens, ())['params'])

  boxed = jax.eval_shape(
      lambda key: module.init(key, tokens, tokens, ())['params'],
      jax.random.key(0))
  axes = jax.tree.map(
      lambda box: tuple(box.names), boxed,
      is_leaf=lambda x: isinstance(x, nn.Partitioned))
  return Model(
      config=config, init=init, axes=axes,
      apply=lambda params, *args, **kwargs: module.apply(
          {'params': params}, *args, **kwargs),
      unembed=lambda params, hidden: module.apply(
          {'params': params}, hidden, method='unembed'))


def decoding_params(params: Params, num_layers: int) -> Params:
  """Scanned parameters -> the tree that make(decoding=True) takes.

  Layers lie apart, under `layers_<i>`, and weights are [out, in]: with few
  rows a product costs what it takes to bring the weights into registers, and
  XLA's CPU kernels repack the right operand, but not the left one.
  """
  flip = lambda path, leaf: (
      leaf.swapaxes(-1, -2) if path[-1].key in ('kernel', 'head') else leaf)
  params = jax.tree_util.tree_map_with_path(flip, params)
  layers = {
      f'layers_{i}': jax.tree.map(lambda leaf: leaf[i], params['layers'])
      for i in range(num_layers)}
  return {**{k: v for k, v in params.items() if k != 'layers'}, **layers}


class Transformer(nn.Module):
  """Embedding, decoder layers, final norm and head."""
  config: config_lib.ModelConfig
  dtype: jnp.dtype
  decoding: bool
  remat: str
  constrain: Constrain

  def setup(self):
    c = self.config
    self.embedding = self.param(
        'embedding', _normal(c, ('vocab', 'embed')),
        (c.vocab_size, c.hidden_size))
    layer = Layer
    if self.remat == 'layer':
      # Scanned layers are not merged by CSE, so its barrier is not needed.
      layer = nn.remat(layer, prevent_cse=self.decoding)
    kwargs = dict(config=c, dtype=self.dtype, decoding=self.decoding,
                  constrain=self.constrain)
    if not self.decoding:
      self.layers = nn.scan(
          layer, variable_axes={'params': 0}, split_rngs={'params': True},
          in_axes=(nn.broadcast, 0, nn.broadcast), out_axes=0,
          length=c.num_layers,
          metadata_params={nn.PARTITION_NAME: 'layers'})(**kwargs)
    else:
      self.layers = [layer(**kwargs) for _ in range(c.num_layers)]
    self.norm = RMSNorm(c.norm_epsilon)
    if not c.tie_embeddings:
      self.head = _weight(self, 'head', c, (c.hidden_size, c.vocab_size),
                          ('embed', 'vocab'), self.decoding)

  def __call__(self, tokens, positions, blocks=(), cache=None):
    # Gather whole rows: a table cut along `embed` and gathered to rows cut
    # along `batch` would be rematerialized in full.
    table = self.constrain(self.embedding, ('vocab', None))
    x = table[tokens].astype(self.dtype)
    x = self.constrain(x, ('batch', 'length', 'embed_activation'))
    rotary = _rotary(self.config, positions)
    reach = tuple((block.lengths, block.members) for block in blocks)
    if not self.decoding:
      stacked = tuple((block.keys, block.values) for block in blocks)
      x, (keys, values) = self.layers(x, rotary, stacked, reach)
    else:
      pairs = []
      for i, layer in enumerate(self.layers):
        at_layer = lambda block: (block.keys[i], block.values[i])
        own = cache and (*at_layer(cache), cache.lengths)
        x, pair = layer(x, rotary, tuple(map(at_layer, blocks)), reach, own)
        pairs.append(pair)
      keys, values = zip(*pairs)
    if self.is_initializing():
      self.unembed(self.norm(x))
    return self.norm(x), keys, values

  def unembed(self, hidden):
    """hidden [..., D] -> float32 logits [..., V]."""
    hidden = hidden.astype(self.dtype)
    if not self.config.tie_embeddings:
      return _matmul(hidden, self.head, self.decoding).astype(jnp.float32)
    if self.decoding:  # the table is [out, in] as it is
      return _matmul(hidden, self.embedding, True).astype(jnp.float32)
    return _matmul(hidden, self.embedding.T).astype(jnp.float32)


class Layer(nn.Module):
  """Attention and gated MLP, each behind its norm and a residual."""
  config: config_lib.ModelConfig
  dtype: jnp.dtype
  decoding: bool
  constrain: Constrain

  @nn.compact
  def __call__(self, x, rotary, blocks, reach, cache=None):
    epsilon = self.config.norm_epsilon
    attention, keys, values = Attention(
        self.config, self.decoding, self.constrain, name='attention')(
            RMSNorm(epsilon, name='attention_norm')(x), rotary, blocks, reach,
            cache)
    x = x + attention
    x = x + MLP(self.config, self.decoding, self.constrain, name='mlp')(
        RMSNorm(epsilon, name='mlp_norm')(x))
    x = self.constrain(x, ('batch', 'length', 'embed_activation'))
    return x, (keys, values)


class Attention(nn.Module):
  """Grouped-query attention over given blocks and, causally, over itself."""
  config: config_lib.ModelConfig
  decoding: bool
  constrain: Constrain

  @nn.compact
  def __call__(self, x, rotary, blocks, reach, cache=None):
    c = self.config
    rows, length, _ = x.shape
    def project(name, heads, axis):
      out = Linear(heads * c.head_dim, c, ('embed', axis), self.decoding,
                   c.qkv_bias, name=name)(x)
      return out.reshape(rows, length, heads, c.head_dim).swapaxes(1, 2)
    query = project('query', c.num_heads, 'heads')
    key = project('key', c.num_kv_heads, 'kv_heads')
    value = project('value', c.num_kv_heads, 'kv_heads')
    if c.qk_norm:
      query = RMSNorm(c.norm_epsilon, name='query_norm')(query)
      key = RMSNorm(c.norm_epsilon, name='key_norm')(key)
    query, key = _rotate(query, rotary), _rotate(key, rotary)
    query = self.constrain(query, ('batch', 'heads', 'length', None))
    if cache is None:
      own = own_part(query, key, value)
    else:
      key, value = _write(cache, key, value)
      own = block_part(query, key, value, cache[-1] + 1)
    out = attend(query, blocks, reach, own)
    out = out.swapaxes(1, 2).reshape(rows, length, c.num_heads * c.head_dim)
    out = Linear(c.hidden_size, c, ('heads', 'embed'), self.decoding,
                 name='output')(out)
    return out, key, value


class MLP(nn.Module):
  """down(silu(gate(x)) * up(x))."""
  config: config_lib.ModelConfig
  decoding: bool
  constrain: Constrain

  @nn.compact
  def __call__(self, x):
    c = self.config
    def project(features, axes, name):
      return Linear(features, c, axes, self.decoding, name=name)
    gate = project(c.intermediate_size, ('embed', 'mlp'), 'gate')(x)
    up = project(c.intermediate_size, ('embed', 'mlp'), 'up')(x)
    hidden = self.constrain(jax.nn.silu(gate) * up, ('batch', 'length', 'mlp'))
    return project(c.hidden_size, ('mlp', 'embed'), 'down')(hidden)


class Linear(nn.Module):
  """x @ kernel (+ bias), kernel float32[in, out], computed in x's dtype.

  For decoding the kernel is [out, in].
  """
  features: int
  config: config_lib.ModelConfig
  axes: tuple[str, str]
  decoding: bool
  use_bias: bool = False

  @nn.compact
  def __call__(self, x):
    kernel = _weight(self, 'kernel', self.config,
                     (x.shape[-1], self.features), self.axes, self.decoding)
    out = _matmul(x, kernel, self.decoding)
    if self.use_bias:
      bias = self.param(
          'bias', nn.with_partitioning(nn.initializers.zeros, self.axes[1:]),
          (self.features,))
      out = out + bias
    return out.astype(x.dtype)


class RMSNorm(nn.Module):
  """x / rms(x) * scale, the statistics in float32."""
  epsilon: float

  @nn.compact
  def __call__(self, x):
    scale = self.param(
        'scale', nn.with_partitioning(nn.initializers.ones, (None,)),
        (x.shape[-1],))
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + self.epsilon)
    return (y * scale).astype(x.dtype)


def attend(query, blocks, reach, own):
  """Softmax attention over cached blocks and what else a row attends to.

  Each block gives an unnormalized sum with its own maximum; they are put on
  one scale at the end, so that no two blocks are ever copied together.

  Args:
    query: [B, H, T, d], rotary embedding applied.
    blocks: pairs of keys and values [R, K, S, d].
    reach: (lengths int32[R], Members or None) a block; without members R
      divides B.
    own: the part of own_part or block_part.

  Returns:
    [B, H, T, d], in query's dtype.
  """
  parts = [own, *(block_part(query, *pair, *where)
                  for pair, where in zip(blocks, reach, strict=True))]
  peaks, totals, outs = zip(*parts)
  peak = functools.reduce(jnp.maximum, peaks)
  scales = [jnp.exp(p - peak) for p in peaks]
  total = sum(s * t for s, t in zip(scales, totals))
  out = sum((s / total)[..., None] * o for s, o in zip(scales, outs))
  return out.reshape(query.shape).astype(query.dtype)


def own_part(query, key, value):
  """The part of tokens that attend to one another, causally."""
  causal = jnp.tril(jnp.ones(2 * query.shape[2:3], bool))
  own = _part(_grouped(query, key)[:, None], key, value, causal)
  return jax.tree.map(lambda x: x[:, 0], own)


def block_part(query, keys, values, lengths, members=None):
  """A block's part of every query row's attention; see _part."""
  query = _grouped(query, keys)
  if members is None:
    query = query.reshape(keys.shape[0], -1, *query.shape[1:])
  else:
    query = query.at[members.rows].get(mode='fill', fill_value=0)
  mask = jnp.arange(keys.shape[2]) < lengths[:, None]
  part = _part(query, keys, values, mask[:, None, None, None, None])
  part = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part)
  if members is None:
    return part
  return jax.tree.map(lambda x: x.at[members.places].get(mode='clip'), part)


def _grouped(query, keys):
  """Scaled [B, H, T, d] -> [B, K, H/K, T, d]."""
  rows, heads, length, width = query.shape
  kv_heads = keys.shape[1]
  return (query * width ** -0.5).reshape(
      rows, kv_heads, heads // kv_heads, length, width)


def _write(cache, key, value):
  """Puts one key and value a row [B, K, 1, d] into the row's cache.

  A row whose cache is full stays as it is.
  """
  keys, values, lengths = cache
  rows = jnp.arange(keys.shape[0])
  put = lambda array, x: array.at[rows, :, lengths].set(
      x[:, :, 0].astype(array.dtype), mode='drop', unique_indices=True,
      indices_are_sorted=True)
  return put(keys, key), put(values, value)


def _part(query, keys, values, mask):
  """exp(scores - peak), summed and weighted by values.

  Args:
    query: [R, n, K, H/K, T, d].
    keys: [R, K, S, d].
    values: [R, K, S, d].
    mask: broadcast to [R, n, K, H/K, T, S].

  Returns:
    peak and total float32[R, n, K, H/K, T], out float32[..., d]. Where the
    mask is empty the peak is the lowest number and the rest has no meaning.
  """
  scores = jnp.einsum('rnkgtd,rksd->rnkgts', query, keys,
                      preferred_element_type=jnp.float32)
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  # The result does not depend on the peak, so neither does its gradient.
  peak = jax.lax.stop_gradient(jnp.max(scores, -1))
  weights = jnp.exp(scores - peak[..., None])
  out = jnp.einsum('rnkgts,rksd->rnkgtd', weights.astype(query.dtype), values,
                   preferred_element_type=jnp.float32)
  return peak, jnp.sum(weights, -1), out


def rotary_frequencies(config: config_lib.ModelConfig) -> np.ndarray:
  """Radians a position, float32[head_dim / 2]; Llama 3's scaling applied.

  By wavelength w = 2 pi / f, with o the original positions: w > o / low is
  slowed by `factor`, w < o / high is kept, between the two mixed linearly.
  """
  exponents = np.arange(0, config.head_dim, 2, dtype=np.float32)
  exponents = exponents / np.float32(config.head_dim)
  frequencies = 1.0 / (np.float32(config.rope_theta) ** exponents)
  scaling = config.rope_scaling
  if scaling is None:
    return frequencies.astype(np.float32)
  turns = scaling.original_max_positions * frequencies / (2 * math.pi)
  mix = (turns - scaling.low_freq_factor) / (
      scaling.high_freq_factor - scaling.low_freq_factor)
  mix = np.clip(mix, 0.0, 1.0)
  return ((1 - mix) * frequencies / scaling.factor
          + mix * frequencies).astype(np.float32)


def _rotary(config, positions):
  """(cos, sin) float32[B, 1, T, d / 2]."""
  angles = positions[:, None, :, None] * rotary_frequencies(config)
  return jnp.cos(angles), jnp.sin(angles)


def _rotate(x, rotary):
  """Turns dimension i with i + d / 2 (the half-split order of the Hub)."""
  cos, sin = rotary
  first, second = jnp.split(x.astype(jnp.float32), 2, -1)
  return jnp.concatenate(
      [first * cos - second * sin, second * cos + first * sin],
      -1).astype(x.dtype)


def _matmul(x, kernel, transposed=False):
  """x [..., in] @ kernel [in, out] in x's dtype, float32 out.

  A transposed kernel is [out, in], and is the left operand.

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

  def product(start, stop):
    if not transposed:
      return jax.lax.dot(flat[:, start:stop], kernel[start:stop],
                         preferred_element_type=jnp.float32)
    return jax.lax.dot_general(
        kernel[:, start:stop], flat[:, start:stop], (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32).T

  step = size // parts
  out = sum(product(i, i + step) for i in range(0, size, step))
  return out.reshape(*x.shape[:-1], out.shape[-1])


def _weight(module, name, config, shape, axes, transposed):
  """A parameter [in, out], or [out, in] where it is the left operand."""
  if transposed:
    shape, axes = shape[::-1], axes[::-1]
  return module.param(name, _normal(config, axes), shape)


def _normal(config, axes):
  return nn.with_partitioning(
      nn.initializers.normal(config.initializer_range), axes)
