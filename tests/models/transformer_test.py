"""One decoder in several arrangements gives one result."""
import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip.models import config as config_lib
from rlclip.models import linear, transformer

CONFIG = config_lib.ModelConfig(
    family='qwen3', vocab_size=40, hidden_size=24, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=8, intermediate_size=32, qk_norm=True,
    tie_embeddings=False, initializer_range=0.3)
TOKENS = jax.random.randint(jax.random.key(1), (4, 12), 0, 40)
POSITIONS = jnp.broadcast_to(jnp.arange(12), TOKENS.shape)


@functools.cache
def full(**kwargs):
  """The model, its parameters, and its logits and cache of TOKENS."""
  model = transformer.make(CONFIG, **kwargs)
  params = jax.jit(transformer.make(CONFIG).init)(jax.random.key(0))
  if kwargs.get('decoding'):
    params = transformer.decoding_params(CONFIG, params)
  @jax.jit
  def run(params):
    hidden, keys, values = model.apply(params, TOKENS, POSITIONS)
    return model.unembed(params, hidden), keys, values
  return model, params, *run(params)


def test_tokens_after_a_cache_get_the_logits_of_one_pass():
  model, params, logits, keys, values = full()
  # Tokens 0-4 lie in one block, 5-7 in a second one, padded to 6; rows of
  # different content fill the padding.
  first = transformer.KVBlock(keys[..., :5, :], values[..., :5, :],
                              jnp.full(4, 5))
  second = transformer.KVBlock(
      jnp.concatenate([keys[..., 5:8, :], keys[..., :3, :]], -2),
      jnp.concatenate([values[..., 5:8, :], values[..., :3, :]], -2),
      jnp.full(4, 3))
  hidden, more_keys, _ = jax.jit(model.apply)(
      params, TOKENS[:, 8:], POSITIONS[:, 8:], (first, second))
  got = model.unembed(params, hidden)
  np.testing.assert_allclose(got, logits[:, 8:], rtol=0, atol=1e-5)
  np.testing.assert_allclose(more_keys, keys[..., 8:, :], rtol=0, atol=1e-5)


def test_a_block_serves_a_group_of_rows():
  """Rows 0, 1 attend to block row 0, rows 2, 3 to block row 1."""
  model, params, _, keys, values = full()
  apply = jax.jit(model.apply)
  shared = transformer.KVBlock(keys[:, ::2], values[:, ::2], jnp.array([3, 9]))
  repeat = lambda x: jnp.repeat(x, 2, 1)
  own = transformer.KVBlock(repeat(shared.keys), repeat(shared.values),
                            jnp.array([3, 3, 9, 9]))
  for got, expected in zip(
      apply(params, TOKENS[:, :2], POSITIONS[:, 9:11], (shared,)),
      apply(params, TOKENS[:, :2], POSITIONS[:, 9:11], (own,))):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize('length', [1, 2])
def test_a_block_serves_rows_in_any_order(length):
  """Block row 0 serves rows 3 and 0, row 1 row 1, row 2 none, row 3 row 2."""
  model, params, _, keys, values = full()
  apply = jax.jit(model.apply)
  shared = transformer.KVBlock(
      keys, values, jnp.array([3, 9, 5, 0]), transformer.Members(
          rows=jnp.array([[3, 0], [1, 4], [4, 4], [4, 2]]),
          places=jnp.array([1, 2, 7, 0])))
  order = jnp.array([0, 1, 3, 0])
  own = transformer.KVBlock(
      keys[:, order], values[:, order], jnp.array([3, 9, 0, 3]))
  args = params, TOKENS[:, :length], POSITIONS[:, 9:9 + length]
  for got, expected in zip(apply(*args, (shared,)), apply(*args, (own,))):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_later_tokens_change_nothing_before_them():
  model, params, logits, _, _ = full()
  changed = TOKENS.at[:, 7:].set(3)
  hidden, _, _ = jax.jit(model.apply)(params, changed, POSITIONS)
  got = model.unembed(params, hidden)
  np.testing.assert_allclose(got[:, :7], logits[:, :7], rtol=0, atol=1e-6)
  assert np.max(np.abs(got[:, 7:] - logits[:, 7:])) > 0.1


def test_unrolled_layers_equal_scanned_ones():
  _, _, scanned, keys, values = full()
  _, _, unrolled, own_keys, own_values = full(decoding=True)
  np.testing.assert_allclose(unrolled, scanned, rtol=0, atol=1e-5)
  np.testing.assert_allclose(jnp.stack(own_keys), keys, rtol=0, atol=1e-5)
  np.testing.assert_allclose(jnp.stack(own_values), values, rtol=0, atol=1e-5)


def test_remat_changes_no_gradient():
  def gradient(remat):
    model = transformer.make(CONFIG, remat=remat)
    loss = lambda p: jnp.sum(jax.nn.log_softmax(model.unembed(
        p, model.apply(p, TOKENS, POSITIONS)[0]))[..., 0])
    params = full()[1]
    return jax.jit(jax.grad(loss))(params)
  expected = gradient('none')
  for remat in set(transformer.REMAT) - {'none'}:
    chex.assert_trees_all_close(gradient(remat), expected, rtol=1e-4)


def test_the_less_is_kept_the_less_memory_a_gradient_takes():
  def kept(remat):
    model = transformer.make(
        dataclasses.replace(CONFIG, num_layers=8), remat=remat)
    tokens = jnp.zeros((8, 64), jnp.int32)
    loss = lambda p: jnp.sum(
        model.apply(p, tokens, jnp.broadcast_to(jnp.arange(64), (8, 64)))[0])
    params = jax.eval_shape(model.init, jax.random.key(0))
    compiled = jax.jit(jax.grad(loss)).lower(params).compile()
    return compiled.memory_analysis().temp_size_in_bytes
  assert kept('layer') < 0.8 * kept('dots') < 0.5 * kept('none')


def test_bfloat16_is_float32_to_its_precision():
  _, _, expected, _, _ = full()
  _, _, logits, keys, _ = full(dtype=jnp.bfloat16)
  assert logits.dtype == jnp.float32 and keys.dtype == jnp.bfloat16
  # 8 bits of mantissa: 2^-8 an operation, over some ten of them in a row.
  error = np.sqrt(np.mean((logits - expected) ** 2)) / np.std(expected)
  assert 1e-4 < error < 0.04


def test_llama3_keeps_fast_frequencies_and_slows_the_others():
  """Llama 3.2 1B, by hand: wavelength w = 2 pi / f; kept below 8192 / 4."""
  config = dataclasses.replace(
      CONFIG, head_dim=64, rope_theta=500_000.0,
      rope_scaling=config_lib.RopeScaling(32.0, 1.0, 4.0, 8192))
  plain = transformer.rotary_frequencies(
      dataclasses.replace(config, rope_scaling=None))
  scaled = transformer.rotary_frequencies(config)
  assert plain[0] == 1.0
  np.testing.assert_allclose(plain[16], 500_000.0 ** -0.5, rtol=1e-6)
  ratio = plain / scaled
  # w = 2 pi 500000^(i/32). i = 14: 1956.5 < 2048 is kept.
  np.testing.assert_allclose(ratio[:15], 1.0, rtol=1e-6)
  # i = 17: 6695.11, and s = (8192 / 6695.11 - 1) / 3 = 0.0745266.
  np.testing.assert_allclose(
      ratio[17], 1 / ((1 - 0.0745266) / 32 + 0.0745266), rtol=1e-5)
  # i = 18: 10089.1 > 8192.
  np.testing.assert_allclose(ratio[18:], 32.0, rtol=1e-6)


def test_an_unknown_remat_is_refused():
  with pytest.raises(ValueError, match="got 'full'"):
    transformer.make(CONFIG, remat='full')


def test_the_highest_precision_is_nearer_to_float64():
  random = np.random.default_rng(0)
  x = random.standard_normal((64, 1536)).astype(np.float32)
  kernel = random.standard_normal((1536, 96)).astype(np.float32)
  exact = x.astype(np.float64) @ kernel
  def error(precision):
    with jax.default_matmul_precision(precision):
      out = jax.jit(lambda x, w: linear.matmul(x, w))(x, kernel)
    return np.sqrt(np.mean((np.asarray(out) - exact) ** 2))
  assert error('highest') < 0.8 * error('default')
