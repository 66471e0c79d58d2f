"""The mesh: sizes that fit, sizes that do not, rules that clash."""
import jax
import numpy as np
import pytest

from rlclip import partitioning


def test_one_size_may_be_what_is_left():
  mesh = partitioning.make(-1, 2, 2).mesh
  assert dict(mesh.shape) == {'data': 2, 'fsdp': 2, 'tensor': 2}


def test_sizes_that_do_not_use_the_devices_are_refused():
  with pytest.raises(ValueError, match='does not use the 8 devices'):
    partitioning.make(3, 1, 1)
  with pytest.raises(ValueError, match='does not use the 8 devices'):
    partitioning.make(-1, 3, 1)
  with pytest.raises(ValueError, match='at most one -1'):
    partitioning.make(-1, -1, 1)


def test_the_nearest_sizes_that_would_do_are_told():
  with pytest.raises(ValueError, match='do: 2 x 4 x 1, 2 x 2 x 2, 4 x 2 x 1.$'):
    partitioning.make(2, 3, 1)
  with pytest.raises(ValueError, match='would do: 2 x 1 x 4, 4 x 1 x 2'):
    partitioning.make(-1, 1, 3)


def test_each_device_takes_its_rows_of_a_batch():
  made = partitioning.make(2, 2, 2)
  batch = {'rows': np.arange(8), 'odd': np.ones((3, 2))}
  put = made.put(batch)
  for name, array in put.items():
    np.testing.assert_array_equal(array, batch[name])
  assert put['rows'].sharding.shard_shape((8,)) == (2,)
  assert put['odd'].sharding.is_fully_replicated


def test_within_a_process_parameters_are_cut_alike(monkeypatch):
  made = partitioning.make(1, 4, 2)
  monkeypatch.setattr(jax, 'local_devices', lambda: jax.devices()[4:])
  own = partitioning.within_process(made)
  assert dict(own.mesh.shape) == {'data': 1, 'fsdp': 2, 'tensor': 2}
  assert set(own.mesh.devices.flat) == set(jax.devices()[4:])
  own = partitioning.within_process(partitioning.make(8, 1, 1))
  assert dict(own.mesh.shape) == {'data': 4, 'fsdp': 1, 'tensor': 1}


def test_an_axis_that_does_not_divide_stays_whole():
  made = partitioning.make(1, 4, 2)
  assert made.spec(('heads', 'embed'), (6, 8)) == jax.P('tensor', 'fsdp')
  assert made.spec(('heads', 'embed'), (3, 8)) == jax.P(None, 'fsdp')


def test_two_dimensions_on_one_mesh_axis_are_refused():
  made = partitioning.make(1, 4, 2)
  with pytest.raises(ValueError, match=r"mesh axis \['tensor'\]"):
    made.spec(('heads', 'mlp'), (8, 8))


def test_an_axis_without_a_rule_is_refused():
  with pytest.raises(ValueError, match="logical axis 'expert'"):
    partitioning.make(8).spec(('expert',), (8,))
