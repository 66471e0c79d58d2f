"""A group in one sequence: its prompt once, and every completion after it.

  [prompt, padding | completion 1 | ... | completion G | padding]

A completion's token sees the prompt and, causally, its own completion. Which
blocks of such a mask are empty is known from the shapes alone, so a kernel
that skips empty blocks does no work for what does not meet, and no scores are
held: the form for TPUs, where it is splash attention.
"""
import dataclasses
import functools
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.types import Array

KINDS = ('auto', 'xla', 'splash')

_LANES = 128  # of a TPU: blocks are multiples of it
_BLOCK = 512  # tokens; smaller ones read keys more often


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=['segments'],
    meta_fields=['prompt_length', 'length', 'total'])
@dataclasses.dataclass(frozen=True)
class Layout:
  """Where things stand in a sequence of a group.

  Attributes:
    segments: int32[B, T], 0 at padding of the prompt and at the end, else 1.
      Tokens see only those of their own segment.
    prompt_length: S, static.
    length: C, of one completion, static.
    total: T, static.
  """
  segments: Array
  prompt_length: int
  length: int
  total: int

  def allowed(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Whether places may meet, by their indices; segments come besides."""
    part = lambda place: np.where(
        place < self.prompt_length, -1,
        (place - self.prompt_length) // self.length)
    return (keys <= queries) & (
        (part(keys) == -1) | (part(keys) == part(queries)))


class GroupedAttention(NamedTuple):
  """Attention over sequences of groups, and how they are cut.

  Attributes:
    attend: (query [B, H, T, d], key [B, K, T, d], value, Layout) -> [B, H, T,
      d].
    num_shards: ways in which the mesh cuts B.
  """
  attend: Callable[..., Array]
  num_shards: int


def make(kind: str, partitioner: Any) -> GroupedAttention | None:
  """The attention of this kind on a mesh; None for the form of attention.py.

  Args:
    kind: one of KINDS; 'auto' takes splash attention on TPUs.
    partitioner: of the mesh; see rlclip.partitioning.

  Raises:
    ValueError: an unknown kind.
  """
  if kind not in KINDS:
    raise ValueError(f'attention must be one of {", ".join(KINDS)}, got '
                     f'{kind!r}.')
  platform = partitioner.mesh.devices.flat[0].platform
  if kind == 'auto':
    kind = 'splash' if platform == 'tpu' else 'xla'
  if kind == 'xla':
    return None
  attend = functools.partial(splash, interpret=platform != 'tpu')

  def on_mesh(query, key, value, layout):
    heads = (('batch', 'heads', None, None), ('batch', 'kv_heads', None, None))
    cut = [partitioner.spec(axes, x.shape)[1]
           for axes, x in zip(heads, (query, key))]
    if cut[0] != cut[1]:
      # Too few key-value heads to be cut like the queries they serve.
      times = query.shape[1] // key.shape[1]
      key, value = (jnp.repeat(x, times, 1) for x in (key, value))
    run = lambda q, k, v, segments: attend(
        q, k, v, dataclasses.replace(layout, segments=segments))
    # A kernel is opaque to the compiler's partitioning: each device runs it
    # on its own rows and heads.
    return partitioner.local(
        run, (heads[0], heads[1], heads[1], ('batch', None)), heads[0])(
            query, key, value, layout.segments)
  return GroupedAttention(on_mesh, partitioner.num_batch_shards)


def completion_states(apply: Callable[..., tuple], grouped: GroupedAttention,
                      prompts: Array, prompt_lengths: Array,
                      completions: Array) -> Array:
  """States that predict each completion token; see scoring.completion_states.

  Where there are fewer prompts than the mesh has shards, a group is cut into
  parts with the prompt in each.

  Args:
    apply: of the model.
    grouped: its attention.
    prompts: int32[P, S].
    prompt_lengths: int32[P].
    completions: int32[N, C].

  Returns:
    [N, C, D].
  """
  num_prompts, prompt_length = prompts.shape
  num_rows, length = completions.shape
  group = num_rows // num_prompts
  parts = num_parts(num_prompts, group, grouped.num_shards)
  prompts, lengths = (jnp.repeat(x, parts, 0)
                      for x in (prompts, prompt_lengths))
  size = group // parts
  rows = prompts.shape[0]
  used = prompt_length + size * length
  total = -(-used // _block(used)) * _block(used)
  tail = ((0, 0), (0, total - used))
  tokens = jnp.pad(jnp.concatenate(
      [prompts, completions.reshape(rows, -1)], 1), tail)
  places = jnp.arange(prompt_length)
  later = lengths[:, None] + jnp.tile(jnp.arange(length), size)
  positions = jnp.pad(jnp.concatenate(
      [jnp.broadcast_to(places, prompts.shape), later], 1), tail)
  is_prompt = places < lengths[:, None]
  segments = jnp.pad(jnp.concatenate(
      [is_prompt, jnp.ones_like(later, bool)], 1), tail).astype(jnp.int32)
  states, _, _ = apply(
      tokens, positions,
      layout=Layout(segments, prompt_length, length, total))
  last = jnp.take_along_axis(states, (lengths - 1)[:, None, None], 1)
  last = jnp.repeat(last, size, 0)
  states = states[:, prompt_length:used].reshape(num_rows, length, -1)
  return jnp.concatenate([last, states[:, :-1]], 1)


def num_parts(num_prompts: int, group_size: int, num_shards: int) -> int:
  """Sequences a group is cut into, for all shards to have as many; else 1."""
  return next((n for n in range(1, group_size + 1) if group_size % n == 0
               and num_prompts * n % num_shards == 0), 1)


def dense(query: Array, key: Array, value: Array, layout: Layout) -> Array:
  """The same attention with all scores held, for tests."""
  places = np.arange(layout.total)
  mask = jnp.asarray(layout.allowed(places[:, None], places[None]))
  same = layout.segments[:, :, None] == layout.segments[:, None]
  return jax.nn.dot_product_attention(
      *(x.swapaxes(1, 2) for x in (query, key, value)),
      mask=(mask & same)[:, None]).swapaxes(1, 2)


def splash(query: Array, key: Array, value: Array, layout: Layout, *,
           interpret: bool) -> Array:
  """JAX's splash attention on one device.

  Args:
    query: [B, H, T, d], not scaled.
    key: [B, K, T, d].
    value: [B, K, T, d].
    layout: of the sequences.
    interpret: whether to run the kernel on a CPU, slowly.

  Returns:
    [B, H, T, d].
  """
  # Here, not above: Pallas takes a second that no other run needs.
  from jax.experimental.pallas.ops.tpu import splash_attention as library
  block = _block(layout.total)
  mask = _mask(library, layout)
  kernel = library.make_splash_mha_single_device(
      library.MultiHeadMask([mask] * query.shape[1]),
      block_sizes=library.BlockSizes(
          block_q=block, block_kv=block, block_kv_compute=block,
          block_q_dkv=block, block_kv_dkv=block, block_kv_dkv_compute=block,
          block_q_dq=block, block_kv_dq=block),
      interpret=interpret)
  width = query.shape[-1]
  # The kernel takes whole lanes; zeros change no score and no sum.
  pad = lambda x: jnp.pad(x, ((0, 0),) * 3 + ((0, -width % _LANES),))
  segments = library.SegmentIds(layout.segments, layout.segments)
  out = jax.vmap(kernel)(
      pad(query * width ** -0.5), pad(key), pad(value), segments)
  return out[..., :width].astype(query.dtype)


def _mask(library, layout):
  """The layout as a mask of the kernel's library, made block by block."""
  shape = layout.total, layout.total
  key = layout.prompt_length, layout.length, layout.total

  class GroupMask(library.Mask):
    """Compared by its sizes, so that all heads share one."""
    sizes = key

    @property
    def shape(self):
      return shape

    def __getitem__(self, index):
      queries, keys = (np.arange(layout.total)[i] for i in index)
      return layout.allowed(queries[:, None], keys[None])

    def __eq__(self, other):
      return getattr(other, 'sizes', None) == key

    def __hash__(self):
      return hash(key)
  return GroupMask()


def _block(total: int) -> int:
  return _BLOCK if total >= _BLOCK else _LANES
