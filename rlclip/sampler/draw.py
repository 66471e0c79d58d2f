"""Drawing one token a row, keyed by (seed, request, position) alone."""
import jax
import jax.numpy as jnp

# Two levels make the inverse CDF cheap: sums of blocks, then within one block.
_BLOCK = 128


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


def draw(logits, uniform, temperatures):
  """Inverts each row's cumulative distribution; temperature 0 takes the mode.

  Args:
    logits: float32[B, V], filtered (-inf) where a token is not allowed.
    uniform: float32[B] in [0, 1).
    temperatures: float32[B], 0 for greedy.

  Returns:
    tokens int32[B] and their log-probs float32[B] under the distribution
    drawn from; a greedy row reports the log-prob at temperature 1.
  """
  greedy = temperatures == 0
  scaled = logits / jnp.where(greedy, 1.0, temperatures)[:, None]
  tokens = jnp.where(
      greedy, jnp.argmax(logits, -1), _invert_cdf(scaled, uniform))
  chosen = jnp.take_along_axis(scaled, tokens[:, None], -1)[:, 0]
  return tokens, chosen - jax.nn.logsumexp(scaled, -1)


def keep_top(logits, temperatures, top_ps, top_ks):
  """Sets logits outside the top-k and the top-p nucleus to -inf.

  The most likely token always stays. Ties at the edge are kept together.

  Args:
    logits: float32[B, V].
    temperatures: float32[B]; the nucleus is taken after scaling by it.
    top_ps: float32[B] in (0, 1]; 1 keeps all.
    top_ks: int32[B]; 0 keeps all.

  Returns:
    float32[B, V].
  """
  scaled = logits / jnp.where(temperatures == 0, 1.0, temperatures)[:, None]
  ordered = -jnp.sort(-scaled, -1)
  probs = jax.nn.softmax(ordered, -1)
  rank = jnp.arange(logits.shape[-1])
  before = jnp.cumsum(probs, -1) - probs
  top_ks = jnp.where(top_ks == 0, logits.shape[-1], top_ks)
  # With top_p = 1 rounding must not cut the tail.
  nucleus = (before < top_ps[:, None]) | (top_ps[:, None] >= 1.0)
  kept = jnp.sum(nucleus & (rank < top_ks[:, None]), -1)
  edge = jnp.take_along_axis(ordered, jnp.maximum(kept, 1)[:, None] - 1, -1)
  return jnp.where(scaled >= edge, logits, -jnp.inf)


def _invert_cdf(logits, uniform):
  """The first token whose cumulative probability exceeds `uniform`."""
  rows, vocab = logits.shape
  pad = -vocab % _BLOCK
  weights = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))
  weights = jnp.pad(weights, ((0, 0), (0, pad))).reshape(rows, -1, _BLOCK)
  sums = jnp.cumsum(weights.sum(-1), -1)
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
  return block * _BLOCK + index
