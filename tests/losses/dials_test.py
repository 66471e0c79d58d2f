"""How dials move, and what they may move."""
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip import algorithms
from rlclip.losses import dials
from rlclip.types import Mean


def moved(dial, role, factor, updates=1, **measured):
  means = {name.replace('__', '/'): Mean(jnp.float32(v), jnp.float32(1))
           for name, v in measured.items()}
  return float(dials.moved(
      {role: dial}, {role: jnp.float32(factor)}, updates, means)[role])


@pytest.mark.parametrize('updates, expected', [(0, 1), (50, .75), (200, .5)])
def test_a_ramp_is_linear_and_stays(updates, expected):
  assert moved(dials.Ramp(1, .5, 100), 'width', 1, updates) == expected


@pytest.mark.parametrize('dial, role, metric, sign', [
    (dials.TargetClipShare(.1), 'width', 'clip_ratio__region_mean', 1),
    (dials.TargetKL(.1), 'width', 'trust_region__forward_kl', -1),
    (dials.TargetKL(.1), 'beta', 'penalty', 1)])
def test_a_controller_corrects_a_part_of_the_relative_error(
    dial, role, metric, sign):
  for value, error in ((.1, 0), (.11, .1), (.05, -.2), (9., .2)):
    np.testing.assert_allclose(
        moved(dial, role, 2, **{metric: value}), 2 * (1 + sign * .1 * error),
        rtol=1e-6)
  at_limit = dial.highest if sign > 0 else dial.lowest
  np.testing.assert_allclose(
      moved(dial, role, at_limit, **{metric: 9.}), at_limit, rtol=1e-6)


def test_a_dial_is_written_as_a_string():
  assert dials.get('target_kl(target=0.02)') == dials.TargetKL(.02)
  with pytest.raises(ValueError, match='does not take goal; it takes target'):
    dials.get('target_kl(goal=0.02)')


@pytest.mark.parametrize('overrides, message', [
    (dict(beta_dial='target_clip_share'), 'cannot move the beta'),
    (dict(beta=0, beta_dial='target_kl'), 'there is no penalty'),
    (dict(gate='none', bounds=None, width_dial='ramp'), 'there is no region'),
    (dict(width_dial='ramp(end=0)'), 'Ramp.end must be finite and more than')])
def test_a_dial_without_effect_is_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    algorithms.get('grpo', **overrides)
