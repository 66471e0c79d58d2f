"""One decoder for Llama, Qwen2/2.5 and Qwen3: Linen modules, one layer each.

A call attends to the key-value blocks it is given and to its own tokens
causally, and returns its own keys and values: prefill, and scoring of a whole
group against one shared prompt. In decoding each row's keys and values join
those before them in a cache, and the call returns the cache.
"""
import math
from typing import Any, Callable, NamedTuple, Sequence

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.models import attention as attention_lib
from rlclip.models import config as config_lib
from rlclip.models import groups
from rlclip.models.attention import KVBlock, Members
from rlclip.models.linear import left_matmul, LeftLinear, Linear, matmul, normal
from rlclip.types import Array, Params

__all__ = [
    'KVBlock', 'Members', 'Model', 'decoding_params', 'make',
    'rotary_frequencies']

# What of a layer the backward pass recomputes: nothing; all but the products
# with weights; everything.
REMAT = {
    'none': None,
    'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    'layer': jax.checkpoint_policies.nothing_saveable,
}
Constrain = Callable[[Array, Sequence[str | None]], Array]


class Model(NamedTuple):
  """A decoder as pure functions over a plain parameter tree."""
  config: config_lib.ModelConfig
  init: Callable[[Array], Params]  # key -> params, float32
  apply: Callable[..., tuple]  # see make()
  unembed: Callable[[Params, Array], Array]  # hidden -> float32 logits
  axes: Params  # params' logical axis names, a tuple a leaf
  grouped: Any = None  # groups.GroupedAttention, or None


def make(config: config_lib.ModelConfig, *, dtype=jnp.float32,
         decoding: bool = False, remat: str = 'dots',
         constrain: Constrain = lambda array, axes: array,
         grouped: Any = None) -> Model:
  """Builds the model's functions.

  Args:
    config: the architecture.
    dtype: of activations and products' operands; accumulation, softmax, norms
      and logits are float32.
    decoding: False stacks the layers under one scan, so that one layer is
      compiled; True is the form that decodes fast: see decoding_params.
    remat: what the backward pass recomputes, one of REMAT.
    constrain: lays an activation on the mesh by logical axis names.
    grouped: attention over sequences of groups, for calls with `layout`; see
      groups.py.

  Returns:
    Model, where `apply(params, tokens int32[B, T], positions int32[B, T],
    blocks: Sequence[KVBlock] = (), cache: KVBlock | None = None,
    segments: int32[B, T] | None = None) -> (hidden [B, T, D], keys, values)`;
    keys and values are those of `tokens`, laid out like a KVBlock's. Tokens of
    a row see one another, causally, within a segment. With a cache, one row a
    row of tokens, T is 1, the new keys are written at its lengths, and the
    whole is returned.

  Raises:
    ValueError: on an unknown remat policy.
  """
  if remat not in REMAT:
    raise ValueError(f'remat must be one of {tuple(REMAT)}, got {remat!r}.')
  module = Transformer(config, dtype, decoding, remat, constrain,
                       grouped and grouped.attend)
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
      config=config, init=init, axes=axes, grouped=grouped,
      apply=lambda params, *args, **kwargs: module.apply(
          {'params': params}, *args, **kwargs),
      unembed=lambda params, hidden: module.apply(
          {'params': params}, hidden, method='unembed'))


def decoding_params(config: config_lib.ModelConfig, params: Params) -> Params:
  """Scanned parameters -> the tree that make(decoding=True) takes.

  Layers lie apart, under `layers_<i>`; weights are [out, in], and those that
  multiply the same input are one; see LeftLinear.
  """
  c = config
  group = c.num_heads // c.num_kv_heads
  flip = lambda tree: {k: v.T if k == 'kernel' else v for k, v in tree.items()}

  def by_head(tree, count):  # [H * d, ...] -> [K, count, d, ...]
    return jax.tree.map(lambda x: x.reshape(
        c.num_kv_heads, count, c.head_dim, *x.shape[1:]), flip(tree))

  def layer(i):
    tree = jax.tree.map(lambda leaf: leaf[i], params['layers'])
    attention, mlp = dict(tree['attention']), tree['mlp']
    parts = [by_head(attention.pop(name), count) for name, count in
             (('query', group), ('key', 1), ('value', 1))]
    attention['qkv'] = jax.tree.map(
        lambda *x: jnp.concatenate(x, 1), *parts)
    attention['output'] = flip(attention['output'])
    gate_up = jax.tree.map(
        lambda *x: jnp.stack(x), flip(mlp['gate']), flip(mlp['up']))
    return {**tree, 'attention': attention,
            'mlp': {'gate_up': gate_up, 'down': flip(mlp['down'])}}

  rest = {k: v for k, v in params.items() if k != 'layers'}
  if not c.tie_embeddings:
    rest['head'] = rest['head'].T
  return {**rest, **{f'layers_{i}': layer(i) for i in range(c.num_layers)}}


class Transformer(nn.Module):
  """Embedding, decoder layers, final norm and head."""
  config: config_lib.ModelConfig
  dtype: jnp.dtype
  decoding: bool
  remat: str
  constrain: Constrain
  grouped: Callable[..., Array] | None = None

  def setup(self):
    c = self.config
    self.embedding = self.param(
        'embedding', normal(c, ('vocab', 'embed')),
        (c.vocab_size, c.hidden_size))
    layer = Layer
    if self.remat != 'none' and not self.decoding:
      # Scanned layers are not merged by CSE, so its barrier is not needed.
      layer = nn.remat(
          layer, prevent_cse=False, policy=REMAT[self.remat])
    kwargs = dict(config=c, dtype=self.dtype, decoding=self.decoding,
                  constrain=self.constrain, grouped=self.grouped)
    if not self.decoding:
      self.layers = nn.scan(
          layer, variable_axes={'params': 0}, split_rngs={'params': True},
          in_axes=(nn.broadcast, 0, nn.broadcast, nn.broadcast), out_axes=0,
          length=c.num_layers,
          metadata_params={nn.PARTITION_NAME: 'layers'})(**kwargs)
    else:
      self.layers = [layer(**kwargs) for _ in range(c.num_layers)]
    self.norm = RMSNorm(c.norm_epsilon)
    if not c.tie_embeddings:
      shape, axes = (c.hidden_size, c.vocab_size), ('embed', 'vocab')
      if self.decoding:
        shape, axes = shape[::-1], axes[::-1]
      self.head = self.param('head', normal(c, axes), shape)

  def __call__(self, tokens, positions, blocks=(), cache=None,
               segments=None, layout=None):
    # Gather whole rows: a table cut along `embed` and gathered to rows cut
    # along `batch` would be rematerialized in full.
    table = self.constrain(self.embedding, ('vocab', None))
    x = table[tokens].astype(self.dtype)
    x = self.constrain(x, ('batch', 'length', 'embed_activation'))
    rotary = _rotary(self.config, positions)
    reach = layout or tuple((block.lengths, block.members) for block in blocks)
    if not self.decoding:
      stacked = tuple((block.keys, block.values) for block in blocks)
      x, (keys, values) = self.layers(x, rotary, stacked, reach, segments)
    else:
      pairs = []
      for i, layer in enumerate(self.layers):
        at_layer = lambda block: (block.keys[i], block.values[i])
        own = cache and (*at_layer(cache), cache.lengths)
        x, pair = layer(x, rotary, tuple(map(at_layer, blocks)), reach,
                        segments, own)
        pairs.append(pair)
      keys, values = zip(*pairs)
    if self.is_initializing():
      self.unembed(self.norm(x))
    return self.norm(x), keys, values

  def unembed(self, hidden):
    """hidden [..., D] -> float32 logits [..., V]."""
    hidden, tied = hidden.astype(self.dtype), self.config.tie_embeddings
    if self.decoding:
      return left_matmul(self.embedding if tied else self.head, hidden)
    return matmul(hidden, self.embedding.T if tied else self.head)


class Layer(nn.Module):
  """Attention and gated MLP, each behind its norm and a residual."""
  config: config_lib.ModelConfig
  dtype: jnp.dtype
  decoding: bool
  constrain: Constrain
  grouped: Callable[..., Array] | None = None

  @nn.compact
  def __call__(self, x, rotary, blocks, reach, segments=None, cache=None):
    epsilon = self.config.norm_epsilon
    attention, keys, values = Attention(
        self.config, self.decoding, self.constrain, self.grouped,
        name='attention')(
            RMSNorm(epsilon, name='attention_norm')(x), rotary, blocks, reach,
            segments, cache)
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
  grouped: Callable[..., Array] | None = None

  @nn.compact
  def __call__(self, x, rotary, blocks, reach, segments=None, cache=None):
    c = self.config
    rows, length, _ = x.shape
    def project(name, heads, axis):
      out = Linear(heads * c.head_dim, c, ('embed', axis), c.qkv_bias,
                   name=name)(x)
      return out.reshape(rows, length, heads, c.head_dim).swapaxes(1, 2)
    if self.decoding:
      query, key, value = self._project_at_once(x)
    else:
      query = project('query', c.num_heads, 'heads')
      key = project('key', c.num_kv_heads, 'kv_heads')
      value = project('value', c.num_kv_heads, 'kv_heads')
    if c.qk_norm:
      query = RMSNorm(c.norm_epsilon, name='query_norm')(query)
      key = RMSNorm(c.norm_epsilon, name='key_norm')(key)
    query, key = _rotate(query, rotary), _rotate(key, rotary)
    query = self.constrain(query, ('batch', 'heads', 'length', None))
    if isinstance(reach, groups.Layout):
      out = self.grouped(query, key, value, reach)
      key = value = None  # nobody goes on from them
    else:
      if cache is None:
        own = attention_lib.own_part(query, key, value, segments)
      else:
        key, value = attention_lib.write(cache, key, value)
        own = attention_lib.block_part(query, key, value, cache[-1] + 1)
      out = attention_lib.attend(query, blocks, reach, own)
    out = out.swapaxes(1, 2).reshape(rows, length, c.num_heads * c.head_dim)
    linear = LeftLinear if self.decoding else Linear
    out = linear(c.hidden_size, c, ('heads', 'embed'), name='output')(out)
    return out, key, value

  def _project_at_once(self, x):
    """One product: each key-value head with the query heads it serves."""
    c = self.config
    group = c.num_heads // c.num_kv_heads
    out = LeftLinear((c.num_kv_heads, group + 2, c.head_dim), c,
                     ('embed', ('kv_heads', None, None)), c.qkv_bias,
                     name='qkv')(x)
    out = jnp.moveaxis(out, 1, 3)  # [B, K, H/K + 2, T, d]
    query = out[:, :, :group].reshape(
        x.shape[0], c.num_heads, x.shape[1], c.head_dim)
    return query, out[:, :, group], out[:, :, group + 1]


class MLP(nn.Module):
  """down(silu(gate(x)) * up(x))."""
  config: config_lib.ModelConfig
  decoding: bool
  constrain: Constrain

  @nn.compact
  def __call__(self, x):
    c = self.config
    if self.decoding:
      both = LeftLinear((2, c.intermediate_size), c, ('embed', (None, 'mlp')),
                        name='gate_up')(x)
      gate, up = both[..., 0, :], both[..., 1, :]
    else:
      gate = Linear(c.intermediate_size, c, ('embed', 'mlp'), name='gate')(x)
      up = Linear(c.intermediate_size, c, ('embed', 'mlp'), name='up')(x)
    hidden = self.constrain(jax.nn.silu(gate) * up, ('batch', 'length', 'mlp'))
    linear = LeftLinear if self.decoding else Linear
    return linear(c.hidden_size, c, ('mlp', 'embed'), name='down')(hidden)


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
