"""The window of profiled steps."""
import jax.numpy as jnp
import pytest

from rlclip import profiling


def traces(folder):
  return list(folder.glob('**/*.xplane.pb'))


@pytest.mark.parametrize('first, num_steps, ends_at', [
    (2, 2, 3), (1, 1, 1), (4, 9, None)])
def test_the_steps_of_the_window_are_written_when_it_ends(
    tmp_path, first, num_steps, ends_at):
  window = profiling.Window(tmp_path, first, num_steps)
  for number in range(1, 5):
    with window.step(number):
      jnp.ones(4).sum().block_until_ready()
    written = ends_at is not None and number >= ends_at
    assert bool(traces(tmp_path)) == written
  window.close()
  assert len(traces(tmp_path)) == 1


def test_without_steps_nothing_is_recorded(tmp_path):
  window = profiling.Window(tmp_path, 0, 0)
  for number in range(3):
    with window.step(number):
      pass
  window.close()
  assert not traces(tmp_path)
