"""Log-probs and entropy of groups equal those of rows on their own."""
import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip import divergences
from rlclip.models import scoring, transformer
from rlclip.types import Statistic
from tests.models import transformer_test

CONFIG = dataclasses.replace(
    transformer_test.CONFIG, family='qwen2', qk_norm=False, qkv_bias=True,
    tie_embeddings=True)
LENGTHS = np.array([3, 7])
PROMPTS = np.array(jax.random.randint(jax.random.key(2), (2, 8), 0, 40))
COMPLETIONS = np.array(jax.random.randint(jax.random.key(3), (6, 5), 0, 40))
MODEL = transformer.make(CONFIG)
PARAMS = jax.jit(MODEL.init)(jax.random.key(0))


def score(prompts=PROMPTS, chunk=6, temperature=0.7):
  return jax.jit(lambda p: scoring.score(
      MODEL, p, scoring.Texts(prompts, LENGTHS, COMPLETIONS),
      temperature=temperature, chunk=chunk))(PARAMS)


def test_a_group_is_scored_as_its_rows_on_their_own():
  stats = score()
  # Each row alone, prompt and completion in one; what follows is not seen.
  lengths = np.repeat(LENGTHS, 3)  # three rows a prompt
  rows = np.zeros((6, 12), np.int32)
  for row, length in enumerate(lengths):
    rows[row, :length] = PROMPTS[row // 3, :length]
    rows[row, length:length + 5] = COMPLETIONS[row]
  positions = np.broadcast_to(np.arange(12), rows.shape)
  all_logits = jax.jit(lambda p: MODEL.unembed(
      p, MODEL.apply(p, rows, positions)[0]))(PARAMS)
  for row, length in enumerate(lengths):
    logits = np.float64(all_logits[row, length - 1:length + 4]) / 0.7
    logps = logits - np.log(np.sum(np.exp(logits), -1, keepdims=True))
    np.testing.assert_allclose(
        stats.logps[row], logps[np.arange(5), COMPLETIONS[row]],
        rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        stats.entropy[row], -np.sum(np.exp(logps) * logps, -1),
        rtol=0, atol=1e-5)


def test_what_pads_a_prompt_changes_nothing():
  padded = np.where(np.arange(8) < LENGTHS[:, None], PROMPTS, 39)
  np.testing.assert_array_equal(score(padded).logps, score().logps)


@pytest.mark.parametrize('chunk', [1, 1000])
def test_the_chunk_changes_nothing(chunk):
  for got, expected in zip(score(chunk=chunk)[:2], score()[:2]):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def test_equal_logits_have_the_log_of_the_vocabulary():
  stats = scoring.token_stats(jnp.zeros((1, 4)), jnp.array([2]))
  np.testing.assert_allclose(stats.logps, [-np.log(4)], rtol=1e-6)
  np.testing.assert_allclose(stats.entropy, [np.log(4)], rtol=1e-6)


def test_a_single_token_needs_no_second_pass():
  stats = jax.jit(lambda p: scoring.score(
      MODEL, p, scoring.Texts(PROMPTS, LENGTHS, COMPLETIONS[:, :1]),
      temperature=0.7, chunk=6))(PARAMS)
  np.testing.assert_allclose(
      stats.logps, score().logps[:, :1], rtol=0, atol=1e-5)


def against(statistics, **others):
  return jax.jit(lambda p: scoring.score_against(
      MODEL, p, others, scoring.Texts(PROMPTS, LENGTHS, COMPLETIONS),
      statistics, temperature=0.7, chunk=6))


@pytest.mark.parametrize('measure', divergences.names())
def test_a_statistic_is_the_divergence_of_the_distributions(measure):
  other = jax.jit(MODEL.init)(jax.random.key(1))
  whole = Statistic(measure, 'reference')
  binned = Statistic(measure, 'reference', top_k=3)
  stats, held = against((whole, binned), reference=other)(PARAMS)
  chex.assert_trees_all_close(stats._replace(extra={}), score(), atol=1e-6)
  def log_probs(params):
    states = scoring.completion_states(
        MODEL, params, scoring.Texts(PROMPTS, LENGTHS, COMPLETIONS))
    return jax.nn.log_softmax(MODEL.unembed(params, states) / 0.7)
  log_p, log_q = jax.jit(log_probs)(PARAMS), jax.jit(log_probs)(other)
  np.testing.assert_allclose(
      held['reference'].logps,
      jnp.take_along_axis(log_q, COMPLETIONS[..., None], -1)[..., 0],
      rtol=0, atol=1e-5)
  expected = divergences.get(measure).exact(log_p, log_q)
  np.testing.assert_allclose(
      stats.extra[whole], expected, rtol=1e-4, atol=1e-6)
  # Bins hide part of a divergence, never add to it.
  if 'log_ratio' not in measure:  # those two are not convex in w
    assert np.all(stats.extra[binned] <= stats.extra[whole] + 1e-6)
  assert np.all(np.asarray(stats.extra[binned]) > 0)


def test_the_statistic_of_equal_weights_is_zero_and_flat():
  need = Statistic('forward_kl', 'anchor')
  loss = lambda p: jnp.sum(
      against((need,), anchor=PARAMS)(p)[0].extra[need])
  value, slope = jax.value_and_grad(loss)(PARAMS)
  np.testing.assert_allclose(value, 0, atol=1e-5)
  for leaf in jax.tree.leaves(slope):
    np.testing.assert_allclose(leaf, 0, atol=1e-4)


def test_a_statistic_without_its_weights_is_refused():
  with pytest.raises(ValueError, match="needs the weights of 'anchor'"):
    against((Statistic('forward_kl', 'anchor'),), reference=PARAMS)(PARAMS)
