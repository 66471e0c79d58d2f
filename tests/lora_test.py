"""Adapters: what they add, what they leave alone, and a run with them."""
import json
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import tiny
from rlclip import algorithms, assembly
from rlclip import config as run_config
from rlclip import (config_checks, learner, lora, losses, optimizers,
                    partitioning, train)
from rlclip.models import config as config_lib
from rlclip.models import huggingface, transformer
from tests import learner_test

CONFIG = config_lib.ModelConfig(
    'qwen2', 64, 16, 2, 2, 1, 8, 32, qkv_bias=True, initializer_range=0.2)
MODULES = tuple(lora.MODULES)


def weights():
  return transformer.make(CONFIG).init(jax.random.key(0))


def moved_adapters(trainable, params):
  """The parameters with every b away from 0."""
  params = trainable.begin(params)
  trained, frozen = trainable.split(params)
  rng = np.random.default_rng(0)
  trained = jax.tree.map(
      lambda x: jnp.float32(rng.normal(0, 0.3, x.shape)), trained)
  return trained, frozen


def test_the_checks_of_a_config_know_every_module():
  assert config_checks.MODULES == MODULES


def test_merged_weights_are_the_base_and_the_scaled_products():
  base = weights()
  made = lora.make(4, alpha=6.0, modules=('query', 'down'))
  trained, frozen = moved_adapters(made, base)
  merged = made.merge(trained, frozen)
  for part, name in (('attention', 'query'), ('mlp', 'down')):
    pair = trained['layers'][part][name]
    expected = base['layers'][part][name]['kernel'] + 1.5 * np.einsum(
        'lir,lro->lio', pair['a'], pair['b'])
    np.testing.assert_allclose(
        merged['layers'][part][name]['kernel'], expected, atol=1e-6)
    merged['layers'][part][name]['kernel'] = (
        base['layers'][part][name]['kernel'])
  jax.tree.map(np.testing.assert_array_equal, merged, base)


def test_the_policy_begins_as_the_base_and_the_adapters_differ():
  base = weights()
  made = lora.make(4, alpha=6.0, modules=MODULES)
  trained, frozen = made.split(made.begin(base))
  jax.tree.map(np.testing.assert_array_equal, made.merge(trained, frozen), base)
  firsts = [float(pair['a'][0, 0, 0]) for part in trained['layers'].values()
            for pair in part.values()]
  assert len(set(firsts)) == len(MODULES)


def test_gradients_are_those_of_the_merged_weights_projected():
  # d/da = scale g b^T and d/db = scale a^T g, g of the merged kernel.
  made = lora.make(2, alpha=3.0, modules=('key', 'up'))
  trained, frozen = moved_adapters(made, weights())
  model = transformer.make(CONFIG)
  tokens = jnp.arange(12).reshape(2, 6)
  loss = lambda params: jnp.mean(model.apply(params, tokens, tokens)[0] ** 3)
  found = jax.grad(lambda t: loss(made.merge(t, frozen)))(trained)
  whole = jax.grad(loss)(made.merge(trained, frozen))
  for part, name in (('attention', 'key'), ('mlp', 'up')):
    g = np.asarray(whole['layers'][part][name]['kernel'])
    pair = trained['layers'][part][name]
    got = found['layers'][part][name]
    np.testing.assert_allclose(
        got['a'], 1.5 * np.einsum('lio,lro->lir', g, pair['b']), atol=1e-6)
    np.testing.assert_allclose(
        got['b'], 1.5 * np.einsum('lir,lio->lro', pair['a'], g), atol=1e-6)
    assert np.abs(got['b']).max() > 1e-3


def three_updates(sizes=(1, 1, 1), optimizer=None, num_micro_batches=1):
  mesh = partitioning.make(*sizes, devices=jax.devices()[:np.prod(sizes)])
  made = learner.make(
      transformer.make(CONFIG, constrain=mesh.constrain),
      losses.make(algorithms.get('rpg_ufkl')), optimizer or optax.sgd(0.5),
      mesh, temperature=0.8, chunk=16, num_micro_batches=num_micro_batches,
      trainable=lora.make(4, alpha=8.0, modules=MODULES))
  base = weights()
  state = made.init(base)
  reference, first = made.frozen(state.params), None
  for step in range(3):
    batch = learner_test.make_batch(step)
    batch = jax.device_put(batch, mesh.batch_shardings(batch))
    state, metrics = made.update(state, reference, batch)
    first = first or metrics
  return base, state, first, made


@pytest.fixture(scope='module')
def alone():
  return three_updates()


def test_updates_move_the_adapters_and_leave_the_base(alone):
  base, state, first, made = alone
  jax.tree.map(np.testing.assert_array_equal, state.params['base'], base)
  # The reference is the base, so that its KL begins at 0.
  assert float(first['kl'].value()) == 0.0
  start = lora.make(4, alpha=8.0, modules=MODULES).begin(base)['adapters']
  moves = jax.tree.map(lambda x, y: float(np.abs(x - y).max()),
                       state.params['adapters'], start)
  assert min(jax.tree.leaves(moves)) > 1e-7
  merged = made.weights(state.params)
  assert np.abs(merged['layers']['mlp']['up']['kernel']
                - base['layers']['mlp']['up']['kernel']).max() > 1e-4
  np.testing.assert_array_equal(merged['embedding'], base['embedding'])


def test_many_devices_in_parts_are_one_device(alone):
  found = three_updates((2, 2, 2), num_micro_batches=2)[1]
  for a, b in zip(jax.tree.leaves(found.params),
                  jax.tree.leaves(alone[1].params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('name', optimizers.REGISTRY.names())
def test_the_optimizer_holds_the_adapters_alone(name):
  mesh = partitioning.make(1, 4, 2)
  made = learner.make(
      transformer.make(CONFIG), learner.supervised_loss,
      optimizers.make(1e-3, name=name), mesh, temperature=1.0,
      trainable=lora.make(4, alpha=8.0, modules=MODULES))
  state = jax.eval_shape(made.init, jax.eval_shape(weights))
  shapes = {leaf.shape for leaf in jax.tree.leaves(state.opt_state)
            if leaf.shape not in ((), (3,))}
  assert shapes == {x.shape for x in jax.tree.leaves(state.params['adapters'])}
  # [L, in, r] and [L, r, out]: cut as the kernel is, the rank never.
  pair = made.shardings.params['adapters']['layers']['mlp']['up']
  assert pair['a'].shard_shape((2, 16, 4)) == (2, 4, 4)
  assert pair['b'].shard_shape((2, 4, 32)) == (2, 4, 16)
  cuts = set(jax.tree.leaves(made.shardings.opt_state))
  assert {pair['a'], pair['b']} <= cuts


@pytest.mark.parametrize('rank, modules, message', [
    (-1, MODULES, 'rank of 0 .* got rank -1'),
    (4, ('query', 'head'), "out of query, .*'head'"), (4, (), 'got rank 4')])
def test_what_is_no_adapter_is_refused(rank, modules, message):
  with pytest.raises(ValueError, match=message):
    lora.make(rank, alpha=1.0, modules=modules)


def test_a_run_trains_resumes_and_exports(tmp_path):
  c = tiny.get_config()
  c.num_steps, c.model.lora.rank, c.warm_start.num_steps = 2, 4, 3
  c.algorithm.penalty, c.algorithm.beta = 'reverse_kl', 0.1
  c.algorithm.entropy_bonus = 0.1  # a gradient, whatever the rewards
  c.logging.tensorboard, c.checkpoint.keep_last = False, 3
  c.learner.num_mini_batches = 1
  experiment = run_config.resolve(c)
  folder = tmp_path / 'run'
  train.train(experiment, folder)
  rows = [json.loads(line) for line in
          (folder / 'metrics.jsonl').read_text().splitlines()]
  # At step 1 the policy is the reference; both begin as the warm start's end.
  assert rows[1]['kl'] == 0.0 and rows[2]['kl'] != 0.0
  # The base is in the checkpoints, and nowhere else.
  assert not (folder / 'reference').exists()

  parts = assembly.build(experiment)
  _, expected = assembly.restored_params(parts, folder)
  _, base = assembly.restored_params(parts, folder, 0)
  moves = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), expected, base)
  assert moves['layers']['mlp']['up']['kernel'] > 0
  assert moves['embedding'] == moves['norm']['scale'] == 0

  subprocess.run(
      [sys.executable, '-m', 'experiments.convert', f'--source={folder}',
       f'--output={tmp_path / "hf"}'],
      check=True, cwd=pathlib.Path(__file__).parents[1])
  _, exported = huggingface.load(str(tmp_path / 'hf'))
  jax.tree.map(np.testing.assert_array_equal, exported, expected)

  shutil.rmtree(folder / 'checkpoints' / '2')  # as if it had ended there
  train.train(experiment, folder)
  jax.tree.map(np.testing.assert_array_equal,
               assembly.restored_params(parts, folder)[1], expected)
