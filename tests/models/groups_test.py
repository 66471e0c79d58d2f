"""A group in one sequence: equal to two calls, on one device and on eight."""
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip import partitioning
from rlclip.models import config as config_lib
from rlclip.models import groups, scoring, transformer

# Two layers with two key-value heads, narrower than the kernel's lanes.
CONFIG = config_lib.ModelConfig(
    'qwen3', vocab_size=64, hidden_size=64, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=64, intermediate_size=64, qk_norm=True,
    initializer_range=0.2)
P, G, S, C = 2, 4, 24, 26


def texts(seed=0):
  rng = np.random.default_rng(seed)
  ints = lambda *shape: jnp.asarray(rng.integers(0, 64, shape), jnp.int32)
  return scoring.Texts(ints(P, S), jnp.asarray([S, 7]), ints(P * G, C))


def grouped(attend, num_shards=1):
  return groups.GroupedAttention(attend, num_shards)


@pytest.fixture(scope='module')
def params():
  return transformer.make(CONFIG).init(jax.random.key(0))


def loss_and_gradient(params, form, constrain=lambda x, axes: x):
  model = transformer.make(CONFIG, grouped=form, constrain=constrain)
  weights = jnp.asarray(
      np.random.default_rng(1).normal(size=(P * G, C)), jnp.float32)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(params):
    stats = scoring.score(model, params, texts(), temperature=1.0, chunk=64)
    return jnp.sum(weights * stats.logps), stats.logps
  return run(params)


@pytest.fixture(scope='module')
def expected(params):
  return loss_and_gradient(params, None)


def assert_same(found, expected, tolerance):
  (_, logps), gradient = found
  (_, expected_logps), expected_gradient = expected
  np.testing.assert_allclose(logps, expected_logps, atol=tolerance)
  scale = max(float(jnp.max(jnp.abs(x)))
              for x in jax.tree.leaves(expected_gradient))
  chex.assert_trees_all_close(
      gradient, expected_gradient, atol=tolerance * scale)


def test_one_sequence_is_two_calls(params, expected):
  assert_same(loss_and_gradient(params, grouped(groups.dense)), expected, 1e-5)


def test_a_group_may_be_cut_into_parts(params, expected):
  # 8 sequences of one completion each, the prompt in all of them.
  assert_same(
      loss_and_gradient(params, grouped(groups.dense, 8)), expected, 1e-5)


def test_splash_attention_is_two_calls(params, expected):
  splash = functools.partial(groups.splash, interpret=True)
  assert_same(loss_and_gradient(params, grouped(splash)), expected, 1e-4)


@pytest.mark.parametrize('sizes', [(2, 1, 2), (1, 2, 4)])
def test_each_device_runs_the_kernel_on_its_own(params, expected, sizes):
  mesh = partitioning.make(*sizes, devices=jax.devices()[:np.prod(sizes)])
  form = groups.make('splash', mesh)
  found = loss_and_gradient(params, form, mesh.constrain)
  assert_same(found, expected, 1e-4)


def test_a_token_sees_its_prompt_and_its_own_completion():
  layout = groups.Layout(None, prompt_length=2, length=2, total=6)
  places = np.arange(6)
  allowed = layout.allowed(places[:, None], places[None])
  np.testing.assert_array_equal(allowed, np.array([
      [1, 0, 0, 0, 0, 0],
      [1, 1, 0, 0, 0, 0],
      [1, 1, 1, 0, 0, 0],
      [1, 1, 1, 1, 0, 0],
      [1, 1, 0, 0, 1, 0],
      [1, 1, 0, 0, 1, 1]], bool))


def test_the_kind_follows_the_platform():
  mesh = partitioning.make(devices=jax.devices()[:1])
  assert groups.make('auto', mesh) is None  # a CPU
  assert groups.make('xla', mesh) is None
  assert groups.make('splash', mesh) is not None
  with pytest.raises(ValueError, match='auto, xla, splash'):
    groups.make('flash', mesh)
