"""The device side of the sampler: slots, and the two jitted functions on them.

A slot holds one completion in the making. `admit` prefills prompts and puts
requests into free slots; `decode_round` advances every slot by up to a fixed
number of tokens. Between rounds the host reads what is finished.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlclip.models import transformer
from rlclip.sampler import draw
from rlclip.types import Array

ACTIVE, STOP, LENGTH, ERROR, FREE = range(5)


class Requests(NamedTuple):
  """Per-row sampling settings; rows are slots, or requests to be admitted."""
  ids: Array  # uint32[B]
  temperatures: Array  # float32[B]
  top_ps: Array  # float32[B]
  top_ks: Array  # int32[B]
  max_tokens: Array  # int32[B]
  stop_ids: Array  # int32[B, M], padded with -1


class Slots(NamedTuple):
  """B completions in the making."""
  keys: tuple[Array, ...]  # L arrays [B, K, T, d]
  values: tuple[Array, ...]
  lengths: Array  # int32[B], tokens whose keys are cached
  last_tokens: Array  # int32[B], drawn, not yet cached
  num_tokens: Array  # int32[B], drawn so far
  tokens: Array  # int32[B, C]
  logps: Array  # float32[B, C]
  status: Array  # int32[B], one of the constants above
  requests: Requests


def empty(model: transformer.Model, num_slots: int, capacity: int,
          max_tokens: int, max_stop_ids: int, dtype) -> Slots:
  """Slots with nothing in them; `capacity` is T."""
  c = model.config
  cache = lambda: tuple(
      jnp.zeros((num_slots, c.num_kv_heads, capacity, c.head_dim), dtype)
      for _ in range(c.num_layers))
  ints = lambda: jnp.zeros(num_slots, jnp.int32)
  floats = lambda: jnp.ones(num_slots, jnp.float32)
  return Slots(
      keys=cache(), values=cache(), lengths=ints(), last_tokens=ints(),
      num_tokens=ints(), tokens=jnp.zeros((num_slots, max_tokens), jnp.int32),
      logps=jnp.zeros((num_slots, max_tokens), jnp.float32),
      status=jnp.full(num_slots, FREE, jnp.int32),
      requests=Requests(
          jnp.zeros(num_slots, jnp.uint32), floats(), floats(), ints(), ints(),
          jnp.full((num_slots, max_stop_ids), -1, jnp.int32)))


def admit(model, params, key, slots: Slots, prompts, prompt_lengths, rows,
          sources, requests: Requests, *, filtered: bool) -> Slots:
  """Prefills R prompts and starts requests from them, first token drawn.

  Args:
    model: unrolled (scan_layers=False).
    params: its weights.
    key: the sampler's.
    slots: the state to change.
    prompts: int32[R, S], right-padded.
    prompt_lengths: int32[R].
    rows: int32[B], the slot each request takes; B (out of range) for none.
    sources: int32[B], the prompt each request starts from.
    requests: [B].
    filtered: whether any request has top_p or top_k set.

  Returns:
    The new slots.
  """
  positions = jnp.broadcast_to(jnp.arange(prompts.shape[1]), prompts.shape)
  states, keys, values = model.apply(params, prompts, positions)
  last = jnp.take_along_axis(
      states, (prompt_lengths - 1)[:, None, None], 1)[:, 0]
  logits = model.unembed(params, last)[sources]
  put = lambda array, new: array.at[rows].set(new, mode='drop')
  fill = lambda cache, new: cache.at[rows, :, :new.shape[2]].set(
      new[sources].astype(cache.dtype), mode='drop')
  slots = slots._replace(
      keys=tuple(map(fill, slots.keys, keys)),
      values=tuple(map(fill, slots.values, values)),
      lengths=put(slots.lengths, prompt_lengths[sources]),
      num_tokens=put(slots.num_tokens, 0),
      status=put(slots.status, ACTIVE),
      requests=jax.tree.map(put, slots.requests, requests))
  # Draw for every slot, keep it for the admitted ones.
  admitted = put(jnp.zeros(slots.status.shape, bool), True)
  logits = put(jnp.zeros((slots.status.shape[0], logits.shape[1])), logits)
  return _append(key, slots, logits, admitted, filtered)


def decode_round(model, params, key, slots: Slots, *, num_steps: int,
                 filtered: bool) -> Slots:
  """Draws up to `num_steps` tokens for every active slot.

  New keys go to a small buffer that all rows fill at the same index, so that
  the cache stays read-only within the round and is written once at its end.
  """
  new = lambda: tuple(
      jnp.zeros((*k.shape[:2], num_steps, k.shape[3]), k.dtype)
      for k in slots.keys)
  cache = transformer.KVBlock(slots.keys, slots.values, slots.lengths)

  def step(carry):
    i, slots, keys, values = carry
    active = slots.status == ACTIVE
    block = transformer.KVBlock(
        keys, values, jnp.full_like(slots.lengths, i))
    states, k, v = model.apply(
        params, slots.last_tokens[:, None], (cache.lengths + i)[:, None],
        (cache, block))
    write = lambda buffer, x: jax.lax.dynamic_update_slice(
        buffer, x.astype(buffer.dtype), (0, 0, i, 0))
    logits = model.unembed(params, states[:, 0])
    slots = _append(key, slots, logits, active, filtered)
    return (i + 1, slots, tuple(map(write, keys, k)),
            tuple(map(write, values, v)))

  def go_on(carry):
    i, slots, _, _ = carry
    return (i < num_steps) & jnp.any(slots.status == ACTIVE)

  # The cache is closed over, not carried: a carried array may be copied.
  light = slots._replace(keys=(), values=())
  i, light, keys, values = jax.lax.while_loop(
      go_on, step, (0, light, new(), new()))
  flush = jax.vmap(lambda cache, new, start: jax.lax.dynamic_update_slice(
      cache, new, (0, start, 0)))
  merge = lambda caches, news: tuple(
      flush(c, n, slots.lengths) for c, n in zip(caches, news, strict=True))
  return light._replace(
      keys=merge(slots.keys, keys), values=merge(slots.values, values),
      lengths=slots.lengths + i)


def _append(key, slots, logits, rows, filtered):
  """Draws a token for the given rows and settles who is finished."""
  r = slots.requests
  finite = jnp.all(jnp.isfinite(logits), -1)
  if filtered:
    logits = draw.keep_top(logits, r.temperatures, r.top_ps, r.top_ks)
  uniform = draw.uniforms(key, r.ids, slots.num_tokens)
  tokens, logps = draw.draw(logits, uniform, r.temperatures)
  at = (jnp.arange(tokens.shape[0]),
        jnp.where(rows, slots.num_tokens, slots.tokens.shape[1]))
  num_tokens = slots.num_tokens + rows
  status = jnp.where(num_tokens >= r.max_tokens, LENGTH, ACTIVE)
  # A row that ends at its limit on a stop token has stopped.
  stopped = jnp.any(tokens[:, None] == r.stop_ids, -1)
  status = jnp.where(stopped, STOP, status)
  status = jnp.where(finite, status, ERROR)
  return slots._replace(
      last_tokens=jnp.where(rows, tokens, slots.last_tokens),
      num_tokens=num_tokens,
      tokens=slots.tokens.at[at].set(tokens, mode='drop'),
      logps=slots.logps.at[at].set(logps, mode='drop'),
      status=jnp.where(rows, status, slots.status))
