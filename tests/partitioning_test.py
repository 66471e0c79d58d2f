"""The mesh: sizes that fit, sizes that do not, rules that clash."""
import jax
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
