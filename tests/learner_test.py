"""The update step: meshes, micro-batches, compilations, bad gradients."""
import dataclasses
import re

import chex
import jax
import numpy as np
import optax
import pytest

from rlclip import algorithms, learner, losses, optimizers, partitioning
from rlclip.data import batching
from rlclip.losses import dials
from rlclip.models import config as config_lib
from rlclip.models import transformer
from rlclip.types import Batch

CONFIG = config_lib.ModelConfig(
    'qwen2', 64, 32, 2, 4, 2, 8, 64, qkv_bias=True, initializer_range=0.2)
P, G, S, C = 8, 4, 6, 5
SPEC = algorithms.get('rpg_ufkl')


def make_batch(seed=0):
  """Uneven masks: completions of 0 to 5 tokens."""
  rng = np.random.default_rng(seed)
  rows = P * G
  lengths = rng.integers(0, C + 1, (rows, 1))
  logps = rng.normal(-4, 0.3, (rows, C)).astype(np.float32)
  return Batch(
      prompts=rng.integers(0, 64, (P, S)).astype(np.int32),
      prompt_lengths=rng.integers(1, S + 1, P).astype(np.int32),
      completions=rng.integers(0, 64, (rows, C)).astype(np.int32),
      mask=np.arange(C) < lengths, behavior_logps=logps, old_logps=logps,
      advantages=rng.normal(size=rows).astype(np.float32),
      rewards=rng.integers(0, 2, rows).astype(np.float32),
      group_mean=np.full(rows, 0.5, np.float32),
      group_size=np.full(rows, G, np.float32),
      truncated=np.zeros(rows, bool))


def three_updates(sizes=(1, 1, 1), num_micro_batches=1, spec=SPEC,
                  prepare=lambda batch: batch):
  """Returns parameters, metrics and the learner after three updates."""
  devices = jax.devices()[:np.prod(sizes)]
  mesh = partitioning.make(*sizes, devices=devices)
  model = transformer.make(CONFIG, constrain=mesh.constrain)
  # Plain SGD: Adam would blow rounding up where a gradient is nearly zero.
  made = learner.make(
      model, losses.make(spec), optax.sgd(0.05), mesh, temperature=0.8,
      num_micro_batches=num_micro_batches, chunk=16, statistics=spec.needs,
      dials=spec.dials)
  params = jax.device_put(
      transformer.make(CONFIG).init(jax.random.key(0)), made.shardings.params)
  state, metrics = made.init(params), None
  for step in range(3):
    batch = prepare(make_batch(step))
    batch = jax.device_put(batch, mesh.batch_shardings(batch))
    anchor = params if spec.needs_anchor_policy else None
    state, metrics = made.update(state, params, batch, anchor)
  metrics = {k: float(v.value()) for k, v in metrics.items()}
  return jax.device_get(state.params), metrics, made


EXACT = dataclasses.replace(
    SPEC, penalty=losses.Penalty('reverse_kl', 0.1, estimator='exact'),
    width_dial=dials.TargetClipShare(0.1),
    beta_dial=dials.TargetKL(0.01), entropy_bonus=0.01)


def test_exact_penalty_and_dials_on_many_devices_in_parts():
  expected = three_updates(spec=EXACT)
  assert_same(three_updates((2, 2, 2), 2, EXACT), expected)
  # Each of two updates moves them by the most: the policy starts at the
  # reference and is far from it afterwards; most tokens are clipped.
  assert expected[1]['dial/beta'] == pytest.approx(0.98 * 1.02)
  assert expected[1]['dial/width'] == pytest.approx(1.02 ** 2)
  assert expected[2].update._cache_size() == 1


@pytest.fixture(scope='module')
def alone():
  return three_updates()


def assert_same(found, expected):
  for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(expected[0]),
                  strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
  assert found[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize('sizes', [(8, 1, 1), (1, 8, 1), (1, 4, 2), (2, 2, 2)])
def test_eight_devices_are_one_device(alone, sizes):
  assert_same(three_updates(sizes), alone)


@pytest.mark.parametrize('num_micro_batches', [2, 4])
def test_micro_batches_are_the_whole_batch(alone, num_micro_batches):
  assert_same(three_updates(num_micro_batches=num_micro_batches), alone)


@pytest.mark.parametrize('sizes, num_micro_batches', [
    ((1, 1, 1), 1), ((1, 1, 1), 2), ((2, 2, 2), 1)])
def test_a_packed_batch_is_the_padded_one(alone, sizes, num_micro_batches):
  packed = three_updates(
      sizes, num_micro_batches,
      prepare=lambda batch: batching.pack(batch, num_micro_batches))
  assert_same(packed, alone)
  height = batching.pack(make_batch()).packing.source.shape[0]
  assert height <= 0.75 * P * G


def test_no_array_has_the_logits_of_all_tokens():
  """In the compiled update, on one device, the largest of size V is a chunk."""
  config = dataclasses.replace(CONFIG, vocab_size=71)  # no other size is 71
  mesh = partitioning.make(devices=jax.devices()[:1])
  made = learner.make(
      transformer.make(config), losses.make(EXACT), optax.sgd(0.05), mesh,
      temperature=0.8, chunk=2 * P * G, statistics=EXACT.needs,
      dials=EXACT.dials)
  params = jax.eval_shape(transformer.make(config).init, jax.random.key(0))
  text = made.update.lower(
      jax.eval_shape(made.init, params), params, make_batch()
  ).compile().as_text()
  shapes = {tuple(map(int, found.split(','))) for found in
            re.findall(r'\[([\d,]+)\]', text)}
  sizes = {np.prod(shape) for shape in shapes if config.vocab_size in shape}
  chunk = 2 * P * G * config.vocab_size
  assert chunk in sizes
  assert max(sizes) == chunk < P * G * C * config.vocab_size


def test_three_steps_take_one_compilation(alone):
  assert alone[2].update._cache_size() == 1


def test_three_steps_moved_the_parameters(alone):
  start = transformer.make(CONFIG).init(jax.random.key(0))
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), start, alone[0])
  assert min(jax.tree.leaves(moved)) > 1e-6


@pytest.mark.parametrize('axis', ['data', 'fsdp', 'tensor'])
def test_parameters_are_cut_where_the_rules_say(axis):
  mesh = partitioning.make(**{axis: 8})
  model = transformer.make(CONFIG)
  made = learner.make(
      model, learner.supervised_loss, optimizers.make(1e-3), mesh,
      temperature=1.0)
  embedding = made.shardings.params['embedding']
  expected = {'data': (64, 32), 'fsdp': (64, 4), 'tensor': (8, 32)}[axis]
  assert embedding.shard_shape((64, 32)) == expected
  # Both moments of AdamW lie where their parameter lies.
  moments = [s for s in jax.tree.leaves(made.shardings.opt_state)
             if s == embedding]
  assert len(moments) >= 2 or axis == 'data'


def test_a_gradient_that_is_not_finite_leaves_the_state_alone():
  mesh = partitioning.make(devices=jax.devices()[:1])
  model = transformer.make(CONFIG)
  made = learner.make(
      model, learner.supervised_loss, optimizers.make(1e-3), mesh,
      temperature=1.0)
  params = model.init(jax.random.key(0))
  bad = {**params, 'norm': {'scale': params['norm']['scale'] * np.nan}}
  batch = make_batch()
  state, metrics = made.update(made.init(bad), None, batch)
  assert metrics['grad_nonfinite'].value() == 1
  assert int(state.step) == 0
  np.testing.assert_array_equal(state.params['embedding'], params['embedding'])


def test_a_batch_without_tokens_changes_nothing():
  mesh = partitioning.make(devices=jax.devices()[:1])
  model = transformer.make(CONFIG)
  made = learner.make(
      model, losses.make(algorithms.get('atr_grpo')), optax.sgd(0.1), mesh,
      temperature=1.0)
  params = model.init(jax.random.key(0))
  batch = make_batch()._replace(mask=np.zeros((P * G, C), bool))
  state, metrics = made.update(made.init(params), None, batch)
  assert metrics['loss'].value() == 0 and metrics['grad_norm'].value() == 0
  np.testing.assert_array_equal(state.params['embedding'], params['embedding'])


def test_the_callers_parameters_survive_the_donated_state():
  mesh = partitioning.make(devices=jax.devices()[:1])
  model = transformer.make(CONFIG)
  made = learner.make(
      model, learner.supervised_loss, optax.sgd(0.1), mesh, temperature=1.0)
  params = model.init(jax.random.key(0))
  before = np.asarray(params['embedding']).copy()
  made.update(made.init(params), None, make_batch())
  np.testing.assert_array_equal(params['embedding'], before)


@pytest.mark.parametrize('name', algorithms.names())
def test_every_algorithm_fits_the_learner(name):
  spec = algorithms.get(name)
  mesh = partitioning.make(1, 1, 1, devices=jax.devices()[:1])
  model = transformer.make(CONFIG, constrain=mesh.constrain)
  made = learner.make(
      model, losses.make(spec), optax.sgd(0.05), mesh, temperature=1.0,
      statistics=spec.needs, dials=spec.dials)
  params = jax.eval_shape(model.init, jax.random.key(0))
  state = jax.eval_shape(made.init, params)
  after, metrics = jax.eval_shape(
      made.update, state, params if spec.needs_reference else None,
      make_batch(), params if spec.needs_anchor_policy else None)
  chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
  assert {'loss', 'entropy', 'clip_ratio/region_mean'} <= set(metrics)
