"""Where gradients vanish, found blindly, is where the rules say."""
import math

from absl.testing import absltest, parameterized
import numpy as np

from rlclip import divergences, losses
from rlclip.analysis import gradient_map
from rlclip.analysis.gradient_map import Setting
from rlclip.losses import mismatch
from rlclip.trust_region import bounds, gates

_EDGE = 1 / gradient_map.LIMIT, gradient_map.LIMIT


def _spans(spec, advantage, **setting):
  return gradient_map.spans(spec, advantage, Setting(**setting))


def _penalty(measure):
  return losses.LossSpec(
      bounds=None, gate=gates.REGISTRY['none'](),
      penalty=losses.Penalty(measure, 1.0, toward='anchor'))


class SpansTest(parameterized.TestCase):

  def _assert_spans(self, found, *expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12)

  @parameterized.parameters(*divergences.names())
  def test_an_interval_is_found_from_gradients_alone(self, name):
    region = bounds.FromDivergence(name, 0.02)
    low, high = region.interval()
    spec = losses.LossSpec(bounds=region)
    self._assert_spans(
        _spans(spec, 1.0), (_EDGE[0], high, -1), (high, _EDGE[1], 0))
    self._assert_spans(
        _spans(spec, -1.0), (_EDGE[0], low, 0), (low, _EDGE[1], 1))

  def test_two_ends_on_one_side_and_widths_of_gspo(self):
    spec = losses.LossSpec(
        bounds=bounds.Fixed(3e-4, 4e-4), gate=gates.DualClip(3.0))
    self._assert_spans(_spans(spec, -1.0), (_EDGE[0], 0.9997, 0),
                       (0.9997, 3.0, 1), (3.0, _EDGE[1], 0))

  def test_a_single_point_and_a_change_of_sign(self):
    # w log w - w + 1 alone turns at 1; beside -w A it turns at log w = 1.
    alone = _spans(_penalty('reverse_kl'), 0.0)
    self._assert_spans(
        alone, (_EDGE[0], 1, -1), (1, 1, 0), (1, _EDGE[1], 1))
    pushed = _spans(_penalty('reverse_kl'), 1.0)
    self._assert_spans((pushed[0], pushed[-1]), (_EDGE[0], math.e, -1),
                       (math.e, _EDGE[1], 1))

  @parameterized.parameters((1, 0.28), (2, 0.2 + 0.08 * 6 / 7), (8, 0.2))
  def test_group_adaptive_bounds_follow_the_successes(self, successes, eps):
    spec = losses.LossSpec(bounds=bounds.GroupAdaptive(0.2, 0.28))
    self._assert_spans(_spans(spec, 1.0, successes=successes),
                       (_EDGE[0], 1 + eps, -1), (1 + eps, _EDGE[1], 0))

  def test_the_ratio_of_old_to_behavior(self):
    spec = losses.LossSpec(anchor='old', mismatch=mismatch.IcePop())
    self._assert_spans(_spans(spec, 1.0, moves='old'), (_EDGE[0], 0.5, 0),
                       (0.5, 5.0, -1), (5.0, _EDGE[1], 0))

  def test_one_token_of_four_moves_the_ratio_of_its_sequence(self):
    spec = losses.LossSpec(level='sequence')
    self._assert_spans(_spans(spec, 1.0, num_tokens=4),
                       (_EDGE[0], 1.2 ** 4, -1), (1.2 ** 4, _EDGE[1], 0))

  def test_a_probable_token_has_no_ratio_above_its_inverse(self):
    self.assertAlmostEqual(
        _spans(losses.LossSpec(), -1.0, probability=0.5)[-1].high, 2.0)


class CurveTest(absltest.TestCase):

  def test_loss_and_gradient_of_the_clip(self):
    ratios = [0.5, 1.0, 2.0]
    got = gradient_map.curve(losses.LossSpec(), 1.0, ratios)
    np.testing.assert_allclose(got.losses, [-0.5, -1.0, -1.2], rtol=1e-12)
    np.testing.assert_allclose(got.gradients, [-0.5, -1.0, 0.0], rtol=1e-12)
    got = gradient_map.curve(losses.LossSpec(), -1.0, ratios)
    np.testing.assert_allclose(got.losses, [0.8, 1.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(got.gradients, [0.0, 1.0, 2.0], rtol=1e-12)

  def test_more_points_than_are_computed_at_once(self):
    ratios = np.linspace(0.5, 1.1, 3000)
    got = gradient_map.curve(losses.LossSpec(), 1.0, ratios)
    np.testing.assert_allclose(got.gradients, -ratios, rtol=1e-12)

  def test_the_clip_does_not_know_the_probability(self):
    self.assertFalse(
        gradient_map.depends_on_probability(losses.LossSpec(), 1.0))


if __name__ == '__main__':
  absltest.main()
