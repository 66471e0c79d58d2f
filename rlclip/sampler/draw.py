"""Drawing one token a row, keyed by (seed, request, position) alone."""
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlclip.types import Array

# Two levels make the inverse CDF cheap: sums of blocks, then within one block.
_BLOCK = 128
# exp(-104) is 0 in float32; 104 / 2^24 is 6e-6.
_LOG_RANGE, _HALVINGS = 104.0, 24


class Settings(NamedTuple):
  """How each row draws; see types.SamplingSpec."""
  temperatures: Array  # float32[B], 0 for greedy
  top_ps: Array  # float32[B] in (0, 1]; 1 keeps all
  top_ks: Array  # int32[B]; 0 keeps all
  min_tokens: Array  # int32[B]
  max_tokens: Array  # int32[B]
  stop_ids: Array  # int32[B, M], padded with -1


class Mode(NamedTuple):
  """What any row asks for, so that nobody pays for what no row does.

  Static: a compilation each.
  """
  greedy: bool = False  # some temperature is 0
  filtered: bool = False  # some top_p, top_k or min_tokens is set


class Drawn(NamedTuple):
  """One token a row."""
  tokens: Array  # int32[B]
  logps: Array  # float32[B], under the distribution drawn from
  finite: Array  # bool[B], False where the logits made no distribution


def uniforms(key, request_ids, positions):
  """One number in [0, 1) a row; a row's draw depends on nothing outside it.

  Args:
    key: the sampler's key, made from its seed.
    request_ids: uint32[B].
    positions: int32[B], index of the token within its completion.

  Returns:
    float32[B].
  """
  fold = lambda r, p: jax.random.fold_in(jax.random.fold_in(key, r), p)
  keys = jax.vmap(fold)(request_ids, positions)
  return jax.vmap(jax.random.uniform)(keys)


def allowed(logits, settings: Settings, positions):
  """Sets to -inf what a row may not draw; see keep_top and min_tokens."""
  early = positions < settings.min_tokens
  ids = jnp.where(early[:, None], settings.stop_ids, -1)
  # Index V is out of range, and dropped.
  ids = jnp.where(ids < 0, logits.shape[-1], ids)
  rows = jnp.arange(logits.shape[0])[:, None]
  logits = logits.at[rows, ids].set(-jnp.inf, mode='drop')
  return keep_top(
      logits, settings.temperatures, settings.top_ps, settings.top_ks)


def draw(logits, uniform, temperatures, *, greedy: bool = True) -> Drawn:
  """Inverts each row's cumulative distribution; temperature 0 takes the mode.

  Args:
    logits: float32[B, V], -inf where a token is not allowed.
    uniform: float32[B] in [0, 1).
    temperatures: float32[B], 0 for greedy.
    greedy: whether any of them is 0.

  Returns:
    Drawn; a greedy row reports the log-prob at temperature 1.
  """
  is_greedy = temperatures == 0
  scaled = logits / jnp.where(is_greedy, 1.0, temperatures)[:, None]
  peak = jnp.max(scaled, -1)
  tokens, total = _invert_cdf(scaled - peak[:, None], uniform)
  if greedy:
    tokens = jnp.where(is_greedy, jnp.argmax(logits, -1), tokens)
  chosen = jnp.take_along_axis(scaled, tokens[:, None], -1)[:, 0]
  # A NaN or +inf anywhere reaches one of the two.
  finite = jnp.isfinite(peak) & jnp.isfinite(total)
  return Drawn(tokens, chosen - peak - jnp.log(total), finite)


def keep_top(logits, temperatures, top_ps, top_ks):
  """Sets logits outside the top-k and the top-p nucleus to -inf.

  The edge is found by halving, since sorting a vocabulary takes longer than
  the model. The most likely token always stays. Ties at the edge, to within
  1e-5 or what float32 resolves, are kept together.

  Args:
    logits: float32[B, V].
    temperatures: float32[B]; the nucleus is taken after scaling by it.
    top_ps: float32[B] in (0, 1]; 1 keeps all.
    top_ks: int32[B]; 0 keeps all.

  Returns:
    float32[B, V].
  """
  scaled = logits / jnp.where(temperatures == 0, 1.0, temperatures)[:, None]
  peak = jnp.max(scaled, -1)
  weights = jnp.exp(scaled - peak[:, None])
  wanted = top_ps * jnp.sum(weights, -1)

  def in_top(edge):  # whether the tokens above it leave room for one more
    above = scaled > edge[:, None]
    mass = jnp.sum(jnp.where(above, weights, 0.0), -1)
    count = jnp.sum(above, -1)
    # With top_p = 1 rounding must not cut the tail.
    return (((mass < wanted) | (top_ps >= 1.0))
            & ((count < top_ks) | (top_ks == 0)))

  def halve(_, edges):
    low, high = edges
    middle = 0.5 * (low + high)
    inside = in_top(middle)
    return jnp.where(inside, low, middle), jnp.where(inside, middle, high)

  # Below the lowest edge all probability is 0 in float32.
  lowest = peak - _LOG_RANGE
  low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (lowest, peak))
  low = jnp.where(in_top(lowest), -jnp.inf, low)
  return jnp.where(scaled > low[:, None], logits, -jnp.inf)


def _invert_cdf(logits, uniform):
  """The first token whose cumulative probability exceeds `uniform`.

  Args:
    logits: float32[B, V], at most 0.
    uniform: float32[B].

  Returns:
    tokens int32[B], and the sum of exp(logits), float32[B].
  """
  rows, vocab = logits.shape
  weights = jnp.exp(logits)
  weights = jnp.pad(weights, ((0, 0), (0, -vocab % _BLOCK)))
  weights = weights.reshape(rows, -1, _BLOCK)
  blocks = weights.sum(-1)
  sums = jnp.cumsum(blocks, -1)
  target = uniform[:, None] * sums[:, -1:]
  block = jnp.sum(sums <= target, -1)
  # Rounding can leave the target at or beyond the last sum.
  last_block = jnp.sum(sums < sums[:, -1:], -1)
  block = jnp.minimum(block, last_block)
  before = jnp.take_along_axis(
      jnp.pad(sums, ((0, 0), (1, 0))), block[:, None], -1)
  inner = jnp.take_along_axis(weights, block[:, None, None], 1)[:, 0]
  within = jnp.cumsum(inner, -1)
  index = jnp.sum(within <= target - before, -1)
  # Never a token of probability zero: the last one that added to the sum.
  index = jnp.minimum(index, jnp.sum(within < within[:, -1:], -1))
  return block * _BLOCK + index, blocks.sum(-1)
