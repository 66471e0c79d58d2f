"""Attention over caches: blocks that rows share, and each row's own."""
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlclip.types import Array


class Members(NamedTuple):
  """Which query rows attend to which block row, in any order."""
  rows: Array  # int32[R, n]: the query rows of a block row; B where none
  places: Array  # int32[B]: r * n + j where rows[r, j] is b; else anything


class KVBlock(NamedTuple):
  """Keys and values of earlier tokens, rotary embedding applied.

  One block may serve several rows: with B rows of queries and R rows here,
  query row b attends to block row b // (B / R), or to the one that `members`
  names. A block row of length 0 is as good as none.
  """
  keys: Array  # [R, K, S, d]; stacked [L, R, K, S, d], or a tuple of L arrays
  values: Array  # like keys
  lengths: Array  # int32[R]: entries before this index are valid
  members: Members | None = None


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


def own_part(query, key, value, segments=None):
  """The part of tokens that attend to one another, causally.

  Args:
    query: [B, H, T, d].
    key: [B, K, T, d].
    value: [B, K, T, d].
    segments: int32[B, T]; a token sees those of its own segment. None for
      one.

  Returns:
    As _part.
  """
  length = query.shape[2]
  mask = jnp.tril(jnp.ones((length, length), bool))
  if segments is not None:
    mask = mask & (segments[:, None, :, None] == segments[:, None, None, :])
  mask = jnp.concatenate([mask] * (query.shape[1] // key.shape[1]), -2)
  return _part(_grouped(query, key)[:, None], key, value, mask)


def block_part(query, keys, values, lengths, members=None):
  """A block's part of every query row's attention; see KVBlock and _part."""
  query = _grouped(query, keys)
  if members is None:
    query = query.reshape(keys.shape[0], -1, *query.shape[1:])
  else:
    query = query.at[members.rows].get(mode='fill', fill_value=0)
  mask = jnp.arange(keys.shape[2]) < lengths[:, None]
  part = _part(query, keys, values, mask[:, None, None])
  if members is None:
    return part
  return jax.tree.map(lambda x: x.at[members.places].get(mode='clip'), part)


def write(cache, key, value):
  """Puts one key and value a row [B, K, 1, d] into the row's cache.

  Args:
    cache: keys [B, K, S, d], values, lengths int32[B].
    key: written at its row's length; a row whose cache is full stays.
    value: likewise.

  Returns:
    The new keys and values.
  """
  keys, values, lengths = cache
  rows = jnp.arange(keys.shape[0])
  put = lambda array, x: array.at[rows, :, lengths].set(
      x[:, :, 0].astype(array.dtype), mode='drop', unique_indices=True,
      indices_are_sorted=True)
  return put(keys, key), put(values, value)


def _grouped(query, keys):
  """Scaled [B, H, T, d] -> [B, K, H/K, T, d]."""
  rows, heads, length, width = query.shape
  kv_heads = keys.shape[1]
  return (query * width ** -0.5).reshape(
      rows, kv_heads, heads // kv_heads, length, width)


def _part(query, keys, values, mask):
  """exp(scores - peak), summed and weighted by values.

  Args:
    query: [R, n, K, H/K, T, d].
    keys: [R, K, S, d].
    values: [R, K, S, d].
    mask: broadcast to [R, K, n * H/K * T, S].

  Returns:
    peak and total float32[R * n, K, H/K, T], out float32[..., d]. Where the
    mask is empty the peak is the lowest number and the rest has no meaning.
  """
  rows, n, kv_heads, group, length, width = query.shape
  # Written out: two plain products over (R, K), in the layout of the cache.
  query = jnp.moveaxis(query, 1, 2).reshape(rows, kv_heads, -1, width)
  product = lambda a, b, over: jax.lax.dot_general(
      a, b, ((over[:1], over[1:]), ((0, 1), (0, 1))),
      preferred_element_type=jnp.float32)
  barrier = jax.lax.optimization_barrier
  if length == 1:
    # Few rows of queries: as in linear.left_matmul, keys go to the left.
    scores = barrier(product(keys, query, (3, 3))).swapaxes(2, 3)
  else:
    scores = product(query, keys, (3, 3))
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  # The result does not depend on the peak, so neither does its gradient.
  peak = jax.lax.stop_gradient(jnp.max(scores, -1))
  weights = jnp.exp(scores - peak[..., None])
  total, weights = jnp.sum(weights, -1), weights.astype(query.dtype)
  if length == 1:
    weights = barrier(weights)
  out = product(weights, values, (3, 2))

  def rows_first(x):
    x = x.reshape(rows, kv_heads, n, group, length, *x.shape[3:])
    x = jnp.moveaxis(x, 2, 1)
    return x.reshape(rows * n, *x.shape[2:])
  return jax.tree.map(rows_first, (peak, total, out))
