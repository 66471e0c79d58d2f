"""The draw: its distribution, its keys, its edges."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlclip.sampler import draw


@pytest.mark.parametrize('temperature', [0.6, 1.0, 1.3])
def test_frequencies_follow_the_softmax(temperature):
  logits = jax.random.normal(jax.random.key(0), (300,)) * 2
  rows = 20_000
  uniform = draw.uniforms(
      jax.random.key(1), jnp.arange(rows, dtype=jnp.uint32),
      jnp.zeros(rows, jnp.int32))
  tokens, *_ = jax.jit(draw.draw)(
      jnp.broadcast_to(logits, (rows, 300)), uniform,
      jnp.full(rows, temperature))
  expected = rows * np.asarray(jax.nn.softmax(logits / temperature), float)
  counts = np.bincount(tokens, minlength=300)
  often = expected >= 5  # the usual condition of the chi-square test
  observed = [*counts[often], counts[~often].sum()]
  wanted = [*expected[often], expected[~often].sum()]
  wanted = np.array(wanted) * rows / np.sum(wanted)
  assert scipy.stats.chisquare(observed, wanted).pvalue > 1e-3


def test_a_forbidden_token_is_never_drawn_even_at_the_edges():
  logits = jnp.full((1, 300), -jnp.inf).at[0, jnp.array([5, 200])].set(0.0)
  below_one = np.nextafter(np.float32(1), np.float32(0))
  drawn = {int(draw.draw(logits, jnp.array([u]), jnp.ones(1))[0][0])
           for u in (0.0, 0.25, 0.499, 0.5, 0.75, below_one)}
  assert drawn == {5, 200}


def test_log_probs_are_those_of_the_distribution_drawn_from():
  logits = jnp.log(jnp.array([[0.25, 0.75]]))
  _, logp, _ = draw.draw(logits, jnp.array([0.05]), jnp.array([0.5]))
  # At temperature 1/2 the weights are squared: 1/16 against 9/16.
  np.testing.assert_allclose(logp, [np.log(0.1)], rtol=1e-6)


def test_a_draw_depends_on_seed_request_and_position_only():
  key = jax.random.key(0)
  ids, positions = jnp.array([3, 3, 4], jnp.uint32), jnp.array([0, 1, 0])
  together = draw.uniforms(key, ids, positions)
  alone = [draw.uniforms(key, ids[i:i + 1], positions[i:i + 1])[0]
           for i in range(3)]
  np.testing.assert_array_equal(together, alone)
  assert len(set(map(float, together))) == 3
  assert draw.uniforms(jax.random.key(1), ids, positions)[0] != together[0]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
  logits = jnp.log(jnp.array([[0.5, 0.3, 0.15, 0.05]]))
  keep = lambda p, k: np.isfinite(draw.keep_top(
      logits, jnp.ones(1), jnp.array([p]), jnp.array([k])))[0].tolist()
  assert keep(0.5, 0) == [True, False, False, False]
  assert keep(0.51, 0) == [True, True, False, False]
  assert keep(1.0, 0) == [True] * 4
  assert keep(1.0, 3) == [True, True, True, False]
  assert keep(0.51, 1) == [True, False, False, False]


def test_the_edge_is_where_a_sort_in_float64_finds_it():
  rng = np.random.default_rng(0)
  rows, vocab = 60, 3000
  logits = rng.normal(0, 3, (rows, vocab)).astype(np.float32)
  temperatures = rng.choice([0.0, 0.6, 1.0, 1.3], rows).astype(np.float32)
  top_ps = rng.choice([0.1, 0.5, 0.9, 0.95, 1.0], rows).astype(np.float32)
  top_ks = rng.choice([0, 1, 5, 50, 1000], rows).astype(np.int32)
  kept = np.isfinite(draw.keep_top(logits, temperatures, top_ps, top_ks))
  for row in range(rows):
    scaled = logits[row].astype(np.float64) / (temperatures[row] or 1.0)
    order = np.argsort(-scaled)
    probs = np.exp(scaled[order] - scaled.max())
    before = (np.cumsum(probs) - probs) / probs.sum()
    keep = (before < top_ps[row]) | (top_ps[row] >= 1)
    keep &= (np.arange(vocab) < top_ks[row]) | (top_ks[row] == 0)
    np.testing.assert_array_equal(np.flatnonzero(kept[row]),
                                  np.sort(order[keep]))


@pytest.mark.parametrize('top_p, top_k', [(0.8, 0), (1.0, 20), (0.9, 40)])
@pytest.mark.parametrize('temperature', [0.6, 1.0, 1.3])
def test_frequencies_follow_the_softmax_of_what_is_kept(
    temperature, top_p, top_k):
  logits = jax.random.normal(jax.random.key(0), (300,)) * 2
  rows = 20_000
  every = lambda value, dtype: jnp.full(rows, value, dtype)
  kept = draw.keep_top(
      logits[None], every(temperature, jnp.float32)[:1],
      every(top_p, jnp.float32)[:1], every(top_k, jnp.int32)[:1])[0]
  uniform = draw.uniforms(
      jax.random.key(1), jnp.arange(rows, dtype=jnp.uint32),
      every(0, jnp.int32))
  tokens, logps, _ = jax.jit(draw.draw)(
      jnp.broadcast_to(kept, (rows, 300)), uniform,
      every(temperature, jnp.float32))
  probs = np.asarray(jax.nn.softmax(kept / temperature), np.float64)
  np.testing.assert_allclose(logps, np.log(probs[tokens]), rtol=0, atol=1e-4)
  counts = np.bincount(tokens, minlength=300)
  assert not counts[probs == 0].any()
  often = probs * rows >= 5
  rest = int((~often & (probs > 0)).any())
  observed = np.append(counts[often], [counts[~often].sum()] * rest)
  expected = np.append(probs[often], [probs[~often].sum()] * rest) * rows
  expected *= observed.sum() / expected.sum()
  assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3
