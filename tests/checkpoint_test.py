"""Checkpoints: what is saved comes back, and damage is told and passed over."""
import json
import math
import os
import shutil
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlclip import checkpoint, learner, partitioning, types, workdir
from rlclip.models import config as config_lib
from rlclip.models import transformer

_OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
# Loaded machines write slowly; without a limit a hang would stop the suite.
_SECONDS = 120


def _state(value, *, width=4, sharding=None):
  params = {'layer': {'kernel': jnp.full((8, width), value, jnp.float32)},
            'norm': jnp.full((width,), value, jnp.bfloat16)}
  if sharding is not None:
    params['layer']['kernel'] = jax.device_put(
        params['layer']['kernel'], sharding)
  return types.TrainState(
      jnp.int32(value), params, _OPTIMIZER.init(params),
      {'width': jnp.float32(value)})


def _abstract(state):
  return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      state)


def _kernel(restored):
  return float(restored.state.params['layer']['kernel'][0, 0])


def _save(directory, values, **options):
  saver = checkpoint.Checkpointer(directory, **options)
  for value in values:
    saver.save(value, _state(value), {'step': value})
  saver.close()


def _mesh(count):
  return jax.sharding.Mesh(np.array(jax.devices()[:count]), ('fsdp',))


def _by_rows(count):
  return jax.sharding.NamedSharding(
      _mesh(count), jax.sharding.PartitionSpec('fsdp'))


_MODEL = config_lib.ModelConfig('llama', 64, 32, 2, 4, 2, 8, 64)


def _learner(sizes):
  mesh = partitioning.make(*sizes, devices=jax.devices()[:math.prod(sizes)])
  return learner.make(
      transformer.make(_MODEL), learner.supervised_loss, _OPTIMIZER, mesh,
      temperature=1.0)


def test_state_and_metadata_come_back_bit_equal(tmp_path):
  state = _state(3)
  kernel = jax.random.normal(jax.random.key(0), (8, 4))
  state.params['layer']['kernel'] = kernel
  metadata = {'config': {'seed': 1, 'rate': 0.1}, 'best': None, 'steps': [1, 2]}
  saver = checkpoint.Checkpointer(tmp_path)
  assert saver.latest() is None
  assert saver.save(7, state, metadata)
  saver.wait()
  step, got, got_metadata = saver.restore(_abstract(state))
  saver.close()
  assert step == 7 and got_metadata == metadata
  assert type(got.opt_state[1][0]) is type(state.opt_state[1][0])
  jax.tree.map(np.testing.assert_array_equal, got, state)
  assert jax.tree.map(lambda x: x.dtype, got) == jax.tree.map(
      lambda x: x.dtype, state)


def test_state_may_be_donated_as_soon_as_save_returns(tmp_path):
  # 16 MB, so that the writing is still going on when the step runs.
  params = {'kernel': jnp.full((2048, 2048), 1.0)}
  state = types.TrainState(jnp.int32(1), params, ())
  step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
  saver = checkpoint.Checkpointer(tmp_path, keep_last=4)
  for value in (1, 2, 3):
    abstract = _abstract(state)
    saver.save(value, state, {})
    state = jax.block_until_ready(step(state))
  saver.wait()
  for value in (1, 2, 3):
    got = saver.restore(abstract, value).state
    assert int(got.step) == value
    np.testing.assert_array_equal(got.params['kernel'], np.float32(value))
  saver.close()


@pytest.mark.parametrize('before, after', [(1, 8), (8, 2)])
def test_a_checkpoint_moves_between_meshes(tmp_path, before, after):
  state = _state(5, sharding=_by_rows(before))
  saver = checkpoint.Checkpointer(tmp_path)
  saver.save(1, state, {})
  target = _abstract(_state(0, sharding=_by_rows(after)))
  got = saver.restore(target).state
  saver.close()
  kernel = got.params['layer']['kernel']
  assert len(kernel.sharding.device_set) == after
  np.testing.assert_array_equal(kernel, np.full((8, 4), 5, np.float32))


@pytest.mark.parametrize('before, after', [
    ((8, 1, 1), (1, 8, 1)), ((1, 8, 1), (1, 4, 2)), ((1, 4, 2), (2, 2, 2)),
    ((2, 2, 2), (1, 1, 1))])
def test_a_learners_state_moves_between_meshes(tmp_path, before, after):
  made = [_learner(sizes) for sizes in (before, after)]
  state = made[0].init(transformer.make(_MODEL).init(jax.random.key(1)))
  saver = checkpoint.Checkpointer(tmp_path)
  saver.save(3, state, {})
  shapes = jax.eval_shape(lambda: state)
  got = saver.restore(jax.tree.map(
      lambda x, sharding: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=sharding), shapes, made[1].shardings))
  saver.close()
  jax.tree.map(np.testing.assert_array_equal, got.state, state)
  laid = jax.tree.map(lambda x: x.sharding, got.state)
  assert laid == made[1].shardings


def test_params_come_back_without_the_optimizer(tmp_path):
  _save(tmp_path, [4])
  saver = checkpoint.Checkpointer(tmp_path, read_only=True)
  step, params, metadata = saver.restore_params(_abstract(_state(0)).params)
  saver.close()
  assert step == 4 and metadata == {'step': 4}
  np.testing.assert_array_equal(params['norm'], np.full(4, 4, jnp.bfloat16))


@pytest.mark.parametrize('mode, best', [('max', 3), ('min', 4)])
def test_the_last_two_and_the_best_are_kept(tmp_path, mode, best):
  def opened():
    return checkpoint.Checkpointer(tmp_path, keep_last=2, best_mode=mode)
  scores = {1: 0.5, 2: 0.9, 3: 0.9, 4: 0.1, 5: float('nan'), 6: 0.3}
  saver = opened()
  for step, score in scores.items():
    if step == 5:  # the scores outlive the process
      saver.close()
      saver = opened()
    saver.save(step, _state(step), {}, {'pass@1': score})
  saver.save(7, _state(7), {}, {'reward': 1.0})
  saver.save(8, _state(8), {})
  saver.wait()
  assert saver.steps() == (best, 7, 8)
  assert saver.best() == best and saver.latest() == 8
  saver.close()


def test_a_step_is_written_once(tmp_path):
  _save(tmp_path, [1])
  saver = checkpoint.Checkpointer(tmp_path)
  assert not saver.save(1, _state(2), {})
  assert _kernel(saver.restore(_abstract(_state(0)))) == 1
  saver.close()


def test_metadata_must_be_json(tmp_path):
  saver = checkpoint.Checkpointer(tmp_path)
  with pytest.raises(ValueError, match='Checkpoint metadata must be JSON'):
    saver.save(1, _state(1), {'best': np.float32(1)})
  saver.close()


def test_no_checkpoint_is_said(tmp_path):
  saver = checkpoint.Checkpointer(tmp_path)
  with pytest.raises(FileNotFoundError, match='holds no finished checkpoint'):
    saver.restore(_abstract(_state(0)))
  saver.close()
  _save(tmp_path, [1, 2])
  saver = checkpoint.Checkpointer(tmp_path)
  with pytest.raises(FileNotFoundError, match=r'no checkpoint 5.*\[1, 2\]'):
    saver.restore(_abstract(_state(0)), 5)
  saver.close()


def _cut_arrays(folder):
  for file in (folder / 'params').rglob('d/*'):
    os.truncate(file, file.stat().st_size // 2)


def _lose_arrays(folder):
  for file in (folder / 'params').rglob('d/*'):
    file.unlink()


def _cut_list(folder):
  file = folder / 'optimizer' / '_METADATA'
  os.truncate(file, file.stat().st_size // 2)


def _lose_list(folder):
  (folder / 'params' / '_METADATA').unlink()


def _cut_metadata(folder):
  os.truncate(folder / 'metadata' / 'metadata', 4)


def _lose_optimizer(folder):
  shutil.rmtree(folder / 'optimizer')


def _empty(folder):
  shutil.rmtree(folder)
  folder.mkdir()


@pytest.mark.parametrize('harm', [
    _cut_arrays, _lose_arrays, _cut_list, _lose_list, _cut_metadata,
    _lose_optimizer, _empty])
def test_damage_is_told_and_the_newest_whole_one_taken(tmp_path, caplog, harm):
  _save(tmp_path, [1, 2, 3], keep_last=3)
  harm(tmp_path / '3')
  reader = checkpoint.Checkpointer(tmp_path, read_only=True)
  with pytest.raises(ValueError, match='3: .*Restore the folder from a copy'):
    reader.restore(_abstract(_state(0)), 3)
  assert reader.restore(_abstract(_state(0))).step == 2
  reader.close()
  assert (tmp_path / '3').exists()
  saver = checkpoint.Checkpointer(tmp_path, keep_last=3)
  caplog.clear()
  step, state, metadata = saver.restore(_abstract(_state(0)))
  assert (step, int(state.step), metadata) == (2, 2, {'step': 2})
  assert 'Checkpoint 3 in' in caplog.text and 'is damaged' in caplog.text
  assert saver.latest() == 2 and (tmp_path / '3.damaged').exists()
  # The run goes on and writes step 3 again.
  assert saver.save(3, _state(3), {})
  assert saver.restore(_abstract(_state(0))).step == 3
  saver.close()


def test_all_damaged_names_each(tmp_path):
  _save(tmp_path, [1, 2])
  _cut_metadata(tmp_path / '1')
  _lose_optimizer(tmp_path / '2')
  saver = checkpoint.Checkpointer(tmp_path)
  with pytest.raises(ValueError, match='2: optimizer/ is missing; 1: .*JSON'):
    saver.restore(_abstract(_state(0)))
  saver.close()
  assert (tmp_path / '1').exists() and (tmp_path / '2').exists()


def _other_shape(state):
  state.params['layer']['kernel'] = jnp.zeros((8, 5))


def _other_dtype(state):
  state.params['norm'] = jnp.zeros(4)


def _one_more(state):
  state.params['layer']['bias'] = jnp.zeros(4)


def _one_less(state):
  del state.params['norm']


@pytest.mark.parametrize('change, message', [
    (_other_shape,
     r'params: array layer/kernel is float32\[8, 4\], '
     r'expected float32\[8, 5\]'),
    (_other_dtype, r'params: array norm is bfloat16\[4\], expected float32'),
    (_one_more, 'params has no array layer/bias'),
    (_one_less, 'params has an array norm'),
])
def test_another_tree_names_the_first_leaf(tmp_path, change, message):
  _save(tmp_path, [1, 2])
  saver = checkpoint.Checkpointer(tmp_path)
  other = _state(0)
  change(other)
  with pytest.raises(ValueError, match=message):
    saver.restore(_abstract(other))
  # The fault is the request's: no checkpoint is set aside for it.
  assert saver.steps() == (1, 2)
  saver.close()


def test_another_optimizer_names_the_first_leaf(tmp_path):
  _save(tmp_path, [1])
  saver = checkpoint.Checkpointer(tmp_path)
  state = _state(0)
  momentum = optax.sgd(1.0, momentum=0.9).init(state.params)
  with pytest.raises(ValueError, match='optimizer has no array opt_state/0/tr'):
    saver.restore(_abstract(state._replace(opt_state=momentum)))
  saver.close()


def test_a_mesh_that_cannot_cut_an_array_is_no_damage(tmp_path):
  _save(tmp_path, [1])
  saver = checkpoint.Checkpointer(tmp_path)
  wanted = _abstract(_state(0))
  wanted.params['norm'] = jax.ShapeDtypeStruct(
      (4,), jnp.bfloat16, sharding=_by_rows(8))
  with pytest.raises(ValueError, match='partitioned 8 times'):
    saver.restore(wanted)
  assert saver.steps() == (1,)
  saver.close()


_FILLS_THE_DISK = textwrap.dedent('''
    import json, resource, sys
    import jax, jax.numpy as jnp
    from rlclip import checkpoint, types
    saver = checkpoint.Checkpointer(sys.argv[1], keep_last=1)
    kernel = jax.random.normal(jax.random.key(0), (300, 300))
    state = types.TrainState(jnp.int32(1), {'k': kernel}, ())
    saver.save(1, state, {})
    saver.wait()
    # No file may grow beyond 100 kB: it fails like a disk that fills up.
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    seen = []
    for step in (2, 3):
      try:
        saver.save(step, state, {})
        saver.wait()
      except OSError as error:
        seen.append([error.errno, error.strerror, list(saver.steps())])
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    saver.save(4, state, {})
    saver.wait()
    print(json.dumps([seen, list(saver.steps())]))
    saver.close()
''')


def test_a_full_disk_is_an_oserror_and_the_last_good_one_stays(tmp_path):
  run = subprocess.run(
      [sys.executable, '-c', _FILLS_THE_DISK, str(tmp_path)], text=True,
      capture_output=True, timeout=_SECONDS, check=True)
  seen, steps = json.loads(run.stdout.splitlines()[-1])
  assert [(errno, kept) for errno, _, kept in seen] == [(27, [1]), (27, [1])]
  assert 'Earlier checkpoints are whole. Make room there' in seen[0][1]
  assert steps == [4]


def test_killed_while_saving_leaves_whole_ones_only(tmp_path):
  code = textwrap.dedent('''
      import os, signal, sys
      import jax.numpy as jnp
      from rlclip import checkpoint, types
      saver = checkpoint.Checkpointer(sys.argv[1])
      state = types.TrainState(
          jnp.int32(1), {'k': jnp.zeros((3000, 1000))}, ())
      saver.save(1, state, {})
      saver.wait()
      saver.save(2, state, {})
      os.kill(os.getpid(), signal.SIGKILL)
  ''')
  run = subprocess.run(
      [sys.executable, '-c', code, str(tmp_path)], timeout=_SECONDS,
      check=False)
  assert run.returncode == -9
  state = types.TrainState(jnp.int32(0), {'k': jnp.zeros((3000, 1000))}, ())
  saver = checkpoint.Checkpointer(tmp_path)
  assert saver.restore(_abstract(state)).step in saver.steps()
  assert saver.steps()[0] == 1
  assert not list(tmp_path.glob('*tmp*'))
  saver.close()


def test_disk_errors_leave_other_errors_alone(tmp_path):
  with pytest.raises(ValueError, match='^other$'):
    with workdir.disk_errors(tmp_path):
      raise ValueError('other')
