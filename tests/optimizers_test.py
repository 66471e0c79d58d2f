"""Optimizers: steps one can redo by hand, on a tree like the model's."""
import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlclip import config_checks, optimizers

NAMES = ('adamw', 'muon', 'schedule_free_adamw')


def tree(make=np.ones):
  """A leaf of each group, two layers; kernels of the layers are 3-D."""
  attention = {'query': {
      'kernel': make((2, 4, 6)), 'bias': make((2, 6))}}
  values = {
      'embedding': make((5, 4)), 'head': make((4, 5)),
      'norm': {'scale': make((4,))},
      'layers': {'attention': attention, 'attention_norm': {
          'scale': make((2, 4))}, 'mlp': {'up': {'kernel': make((2, 4, 8))}}}}
  return jax.tree.map(jnp.float32, values)


def moved(optimizer, params, grads, count=1):
  state = optimizer.init(params)
  for _ in range(count):
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
  return params


def distances(a, b):
  """Largest move by leaf name, as 'norm/scale'."""
  flat = jax.tree_util.tree_flatten_with_path(
      jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), a, b))[0]
  return {jax.tree_util.keystr(path, simple=True, separator='/'): value
          for path, value in flat}


def test_the_checks_of_a_config_know_every_name():
  assert optimizers.REGISTRY.names() == config_checks.OPTIMIZERS == NAMES
  assert set(config_checks.GROUPS) == set(optimizers._GROUPS)


@pytest.mark.parametrize('name', NAMES)
def test_steps_come_down_a_quadratic(name):
  rng = np.random.default_rng(0)
  target = tree(lambda shape: rng.normal(size=shape))
  loss = lambda params: sum(
      jnp.sum((a - b) ** 2) for a, b in zip(
          jax.tree.leaves(params), jax.tree.leaves(target)))
  optimizer = optimizers.make(0.05, name=name)
  params = tree(np.zeros)
  state, seen = optimizer.init(params), [float(loss(params))]
  for _ in range(20):
    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    params = optax.apply_updates(params, updates)
    seen.append(float(loss(params)))
  assert seen[1] < seen[0] and seen[-1] < 0.5 * seen[0]


def test_the_default_is_optax_adamw():
  mask = lambda params: jax.tree_util.tree_map_with_path(
      lambda path, _: path[-1].key not in ('scale', 'bias'), params)
  theirs = optax.adamw(0.1, weight_decay=0.5, mask=mask)
  rng = np.random.default_rng(0)
  grads = tree(lambda shape: rng.normal(size=shape))
  ours = optimizers.make(0.1, weight_decay=0.5)
  chex.assert_trees_all_close(
      moved(ours, tree(), grads, 3), moved(theirs, tree(), grads, 3), rtol=1e-6)


def test_muon_orthogonalizes_each_layer_by_itself():
  rng = np.random.default_rng(0)
  grads = tree(lambda shape: rng.normal(size=shape))
  after = moved(optimizers.make(1.0, name='muon'), tree(np.zeros), grads)
  step = after['layers']['attention']['query']['kernel']
  for layer in range(2):
    # All singular values are about 0.2 sqrt(6), those of the gradient are not.
    values = np.linalg.svd(step[layer], compute_uv=False) / (0.2 * 6 ** 0.5)
    assert 0.6 < values.min() and values.max() < 1.3
    given = np.linalg.svd(
        grads['layers']['attention']['query']['kernel'][layer],
        compute_uv=False)
    assert given.max() > 2 * given.min()
  # What is no kernel of a layer takes Adam's first step, the rate.
  for name, move in distances(after, tree(np.zeros)).items():
    assert ('layers' in name and 'kernel' in name) or (
        move == pytest.approx(1.0, rel=1e-5)), name


def test_schedule_free_parameters_are_between_iterate_and_average():
  # On a gradient of 1 Adam's step is the rate: z is -0.025, -0.075, -0.15 in
  # the warm-up of 4. x weighs each z by its squared rate, 1, 4, 9 sixteenths.
  optimizer = optimizers.make(
      0.1, name='schedule_free_adamw', warmup_steps=4, b1=0.75)
  params = {'kernel': jnp.zeros((1, 1))}
  after = moved(optimizer, params, {'kernel': jnp.ones((1, 1))}, 3)
  average = -(0.025 + 4 * 0.075 + 9 * 0.15) / 14
  np.testing.assert_allclose(
      after['kernel'], 0.25 * -0.15 + 0.75 * average, rtol=1e-5)


@pytest.mark.parametrize('name', NAMES)
def test_multipliers_scale_steps_and_zero_freezes(name):
  rng = np.random.default_rng(0)
  grads = tree(lambda shape: rng.normal(size=shape))
  factors = {'embedding': 0.5, 'norm': 0.0, 'attention': 0.25}
  make = lambda multipliers: distances(moved(optimizers.make(
      0.1, name=name, weight_decay=0.1, multipliers=multipliers),
      tree(np.zeros), grads), tree(np.zeros))
  plain = make(())
  scaled = make([f'{group}={factor}' for group, factor in factors.items()])
  assert len(plain) == 7 and min(plain.values()) > 0
  for path, move in plain.items():
    factor = factors.get(optimizers.group(path.split('/')), 1.0)
    assert scaled[path] == pytest.approx(factor * move, rel=1e-6, abs=0)


@pytest.mark.parametrize('name', NAMES)
def test_weight_decay_leaves_norms_and_biases(name):
  # A gradient of 0 leaves the decay alone: 0.1 * 0.5 of a weight of 1.
  after = moved(optimizers.make(0.1, name=name, weight_decay=0.5), tree(),
                tree(np.zeros))
  for path, move in distances(after, tree()).items():
    expected = 0.0 if path.endswith(('scale', 'bias')) else 0.05
    assert move == pytest.approx(expected, rel=1e-5, abs=1e-6), path


@pytest.mark.parametrize('name, count', [('adamw', 7), ('muon', 7)])
def test_the_first_moment_has_the_dtype_asked_for(name, count):
  optimizer = optimizers.make(0.1, name=name, state_dtype='bfloat16')
  state = optimizer.init(tree())
  _, state = optimizer.update(tree(), state, tree())
  kinds = [leaf.dtype for leaf in jax.tree.leaves(state) if leaf.ndim]
  assert kinds.count(jnp.bfloat16) == count  # each parameter's, once
  whole = optimizers.make(0.1, name=name).init(tree())
  assert jnp.bfloat16 not in [leaf.dtype for leaf in jax.tree.leaves(whole)]


@pytest.mark.parametrize('name', NAMES)
def test_each_array_of_the_state_is_told_its_parameter(name):
  optimizer = optimizers.make(
      0.1, name=name, weight_decay=0.1, multipliers=('norm=0',))
  shapes = jax.tree.map(lambda leaf: f'{leaf.shape}', tree())
  found = optimizers.state_like(optimizer, tree(), shapes, 'rest')
  state = optimizer.init(tree())
  assert jax.tree.structure(found) == jax.tree.structure(state)
  told = jax.tree.leaves(found)
  for leaf, text in zip(jax.tree.leaves(state), told, strict=True):
    # Muon's three coefficients are the one array of no parameter.
    assert text == ('rest' if leaf.size in (1, 3) else f'{leaf.shape}')
  assert set(jax.tree.leaves(shapes)) <= set(told)


def test_the_warm_up_starts_above_zero_and_reaches_the_rate():
  optimizer = optimizers.make(0.1, warmup_steps=4)
  params = {'kernel': np.ones((2, 2), np.float32)}
  state, moves = optimizer.init(params), []
  for _ in range(6):
    updates, state = optimizer.update(
        {'kernel': np.ones((2, 2), np.float32)}, state, params)
    moves.append(-float(updates['kernel'][0, 0]))
  # AdamW on a constant gradient moves by the learning rate.
  np.testing.assert_allclose(
      moves, [0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rtol=1e-4)


@pytest.mark.parametrize('arguments, message', [
    (dict(schedule='step'), "got 'step'"),
    (dict(schedule='cosine', warmup_steps=5, decay_steps=5), 'got 5 and 5'),
    (dict(name='adam'), "Did you mean 'adamw'"),
    (dict(multipliers=('norms=1',)), "group out of norm, .* got 'norms=1'"),
    (dict(multipliers=('norm',)), "'group=factor'.* got 'norm'"),
    (dict(multipliers=('norm=-1',)), "0 or more .* got 'norm=-1'"),
    (dict(multipliers=('norm=1', 'norm=2')), "'norm' is given twice"),
    (dict(name='schedule_free_adamw', schedule='cosine', decay_steps=9),
     "needs schedule constant.* got 'cosine'"),
    (dict(name='schedule_free_adamw', b1=0.0), 'needs b1 above 0'),
    (dict(name='schedule_free_adamw', state_dtype='bfloat16'), 'float32'),
])
def test_what_makes_no_sense_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    optimizers.make(1e-3, **arguments)
