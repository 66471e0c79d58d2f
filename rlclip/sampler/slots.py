"""The device side of the sampler: slots, prefixes, and the jitted functions.

A slot holds one completion in the making: its own keys and values, and which
prefix it continues. A prefix is a prompt without its last token; its keys and
values lie there once, for all slots that continue it. `prefill` computes
prefixes, `admit` starts requests in slots, whose first input is the prompt's
last token, and `decode_round` advances every slot by a few tokens. Between
rounds the host reads what is finished.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlclip.models import transformer
from rlclip.sampler import draw
from rlclip.types import Array

ACTIVE, STOP, LENGTH, ERROR, FREE = range(5)


class Sizes(NamedTuple):
  """Shapes of the slots; a compilation each."""
  num_slots: int  # B
  num_prefixes: int  # R
  num_lines: int  # n, slots that may continue one prefix
  prefix_capacity: int  # S
  capacity: int  # T, tokens of a completion whose keys fit


class Rows(NamedTuple):
  """What each slot is working on; all of it is small."""
  ids: Array  # uint32[B], of the requests
  lengths: Array  # int32[B], tokens whose keys are in the slot
  last_tokens: Array  # int32[B], the next input
  num_tokens: Array  # int32[B], drawn so far
  status: Array  # int32[B], one of the constants above
  settings: draw.Settings


class Slots(NamedTuple):
  """B completions in the making, and the R prefixes that they continue."""
  keys: tuple[Array, ...]  # L arrays [B, K, T, d]
  values: tuple[Array, ...]
  prefixes: transformer.KVBlock  # L arrays [R, K, S, d]
  rows: Rows


class Report(NamedTuple):
  """What a round did, for the host."""
  tokens: Array  # int32[B, num_steps]
  logps: Array  # float32[B, num_steps]
  counts: Array  # int32[B], how many of them are
  status: Array  # int32[B]


def empty(model: transformer.Model, sizes: Sizes, max_stop_ids: int, dtype,
          constrain=lambda array, axes: array) -> Slots:
  """Slots and prefixes with nothing in them."""
  c = model.config
  num_slots, num_prefixes = sizes.num_slots, sizes.num_prefixes

  def cache(rows, capacity, axis):
    shape = rows, c.num_kv_heads, capacity, c.head_dim
    return tuple(
        constrain(jnp.zeros(shape, dtype), (axis, 'kv_heads', None, None))
        for _ in range(c.num_layers))

  ints = lambda: jnp.zeros(num_slots, jnp.int32)
  floats = lambda: jnp.ones(num_slots, jnp.float32)
  own = lambda: cache(num_slots, sizes.capacity, 'batch')
  shared = lambda: cache(num_prefixes, sizes.prefix_capacity, None)
  return Slots(
      keys=own(), values=own(),
      prefixes=transformer.KVBlock(
          shared(), shared(), jnp.zeros(num_prefixes, jnp.int32),
          transformer.Members(
              jnp.full((num_prefixes, sizes.num_lines), num_slots, jnp.int32),
              ints())),
      rows=Rows(
          ids=jnp.zeros(num_slots, jnp.uint32), lengths=ints(),
          last_tokens=ints(), num_tokens=ints(),
          status=jnp.full(num_slots, FREE, jnp.int32),
          settings=draw.Settings(
              floats(), floats(), ints(), ints(), ints(),
              jnp.full((num_slots, max_stop_ids), -1, jnp.int32))))


def grow(slots: Slots, capacity: int) -> Slots:
  """The same slots with room for longer completions."""
  pad = lambda x: jnp.pad(
      x, ((0, 0), (0, 0), (0, capacity - x.shape[2]), (0, 0)))
  return slots._replace(keys=tuple(map(pad, slots.keys)),
                        values=tuple(map(pad, slots.values)))


def scrub(slots: Slots) -> Slots:
  """The same slots with zeros for whatever is not finite in their caches.

  A masked place still enters a product, as 0 times its value: what a broken
  row left behind would break the next one that has its slot.
  """
  clean = lambda arrays: tuple(
      jnp.where(jnp.isfinite(x), x, 0) for x in arrays)
  prefixes = slots.prefixes
  return slots._replace(
      keys=clean(slots.keys), values=clean(slots.values),
      prefixes=prefixes._replace(
          keys=clean(prefixes.keys), values=clean(prefixes.values)))


def prefill(model, params, slots: Slots, tokens, starts, counts, which, *,
            later: bool) -> Slots:
  """Computes a chunk of some prefixes.

  Args:
    model: in its decoding form.
    params: its weights.
    slots: the state to change.
    tokens: int32[P, c], right-padded.
    starts: int32[P], where the chunks begin in their prefixes.
    counts: int32[P], their tokens.
    which: int32[P], the prefixes; R (out of range) for none.
    later: whether these chunks have others before them.

  Returns:
    The new slots.
  """
  prefixes = slots.prefixes
  before = lambda caches: tuple(
      x.at[which].get(mode='fill', fill_value=0) for x in caches)
  blocks = ()
  if later:
    old_keys, old_values = before(prefixes.keys), before(prefixes.values)
    blocks = (transformer.KVBlock(old_keys, old_values, starts),)
  positions = starts[:, None] + jnp.arange(tokens.shape[1])
  _, keys, values = model.apply(params, tokens, positions, blocks)

  def write(cache, new):
    new = new.astype(cache.dtype)
    if not later:
      return cache.at[which, :, :new.shape[2]].set(new, mode='drop')
    rows = cache.at[which].get(mode='fill', fill_value=0)
    rows = jax.vmap(lambda row, part, start: jax.lax.dynamic_update_slice(
        row, part, (0, start, 0)))(rows, new, starts)
    return cache.at[which].set(rows, mode='drop')

  return slots._replace(prefixes=prefixes._replace(
      keys=tuple(map(write, prefixes.keys, keys)),
      values=tuple(map(write, prefixes.values, values)),
      lengths=prefixes.lengths.at[which].set(starts + counts, mode='drop')))


def admit(slots: Slots, members: transformer.Members, places,
          rows: Rows) -> Slots:
  """Starts requests in slots, or frees slots.

  Args:
    slots: the state to change.
    members: of the prefixes, for all slots.
    places: int32[B], the slot of each of `rows`; B (out of range) for none.
    rows: what the slots are to work on.

  Returns:
    The new slots.
  """
  put = lambda array, new: array.at[places].set(new, mode='drop')
  return slots._replace(
      prefixes=slots.prefixes._replace(members=members),
      rows=jax.tree.map(put, slots.rows, rows))


def decode_round(model, params, key, slots: Slots, patience, *,
                 num_steps: int, mode: draw.Mode) -> tuple[Slots, Report]:
  """Draws up to `num_steps` tokens for every active slot.

  A token's key has its place in its slot, whatever round and whatever
  neighbors it has, so that sums are formed in the same order.

  Args:
    model: in its decoding form.
    params: its weights.
    key: the sampler's.
    slots: the state to change; its capacity holds `num_steps` more tokens.
    patience: int32, slots that may finish before the round ends early.
    num_steps: at most.
    mode: of drawing.

  Returns:
    The new slots, and what the host wants to know.
  """
  prefixes, before = slots.prefixes, slots.rows
  prefix = prefixes.members.places // prefixes.members.rows.shape[1]
  starts = prefixes.lengths[prefix]

  def step(carry):
    i, keys, values, rows, report = carry
    active = rows.status == ACTIVE
    # Out of range for the others, which thus write nothing.
    lengths = jnp.where(active, rows.lengths, keys[0].shape[2])
    states, keys, values = model.apply(
        params, rows.last_tokens[:, None], (starts + rows.lengths)[:, None],
        (prefixes,), cache=transformer.KVBlock(keys, values, lengths))
    logits = model.unembed(params, states[:, 0])
    drawn = _draw(key, rows, logits, mode)
    rows = _advance(rows, drawn, active)
    put = lambda array, x: jax.lax.dynamic_update_slice(
        array, x[:, None], (0, i))
    report = report._replace(
        tokens=put(report.tokens, drawn.tokens),
        logps=put(report.logps, drawn.logps),
        # A token that was drawn from no distribution is none.
        counts=report.counts + (active & drawn.finite), status=rows.status)
    return i + 1, keys, values, rows, report

  def go_on(carry):
    i, _, _, rows, _ = carry
    active = jnp.sum(rows.status == ACTIVE)
    finished = jnp.sum(before.status == ACTIVE) - active
    return (i < num_steps) & (active > 0) & (finished < patience)

  shape = before.ids.shape[0], num_steps
  report = Report(
      jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32),
      jnp.zeros_like(before.lengths), before.status)
  # What does not change is closed over: a carried array may be copied.
  _, keys, values, rows, report = jax.lax.while_loop(
      go_on, step, (0, slots.keys, slots.values, before, report))
  return slots._replace(keys=keys, values=values, rows=rows), report


def _draw(key, rows: Rows, logits, mode: draw.Mode) -> draw.Drawn:
  if mode.filtered:
    logits = draw.allowed(logits, rows.settings, rows.num_tokens)
  uniform = draw.uniforms(key, rows.ids, rows.num_tokens)
  return draw.draw(logits, uniform, rows.settings.temperatures,
                   greedy=mode.greedy)


def _advance(rows: Rows, drawn: draw.Drawn, active) -> Rows:
  """Counts a token for active rows and settles which are finished."""
  settings = rows.settings
  num_tokens = rows.num_tokens + active
  status = jnp.where(num_tokens >= settings.max_tokens, LENGTH, ACTIVE)
  # A row that ends at its limit on a stop token has stopped.
  stopped = jnp.any(drawn.tokens[:, None] == settings.stop_ids, -1)
  status = jnp.where(stopped, STOP, status)
  status = jnp.where(drawn.finite, status, ERROR)
  return rows._replace(
      last_tokens=jnp.where(active, drawn.tokens, rows.last_tokens),
      lengths=rows.lengths + active, num_tokens=num_tokens,
      status=jnp.where(active, status, rows.status))
