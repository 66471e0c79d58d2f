"""A point that makes no sense, or an axis without effect, is refused."""
from absl.testing import absltest, parameterized

from rlclip.losses import (IcePop, LossSpec, Penalty, TokenMean,
                           TruncatedImportance)
from rlclip.trust_region import bounds, gates


class SpecTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(level='word'), 'Unknown level'),
      (dict(anchor='reference'), 'anchor must be one of'),
      (dict(gate='none'), 'gate must be an instance'),
      (dict(gate=None), 'gate must be an instance'),
      (dict(reduction=None), 'reduction must be an instance'),
      (dict(bounds=(0.2, 0.2)), 'bounds must be an instance'),
      (dict(penalty=0.1), 'penalty must be'),
      (dict(bounds=None), 'needs bounds'),
      (dict(gate=gates.Unclipped()), 'would have no effect'),
      (dict(bounds=bounds.FixedBySign()), 'would have no effect'),
      (dict(mismatch=TruncatedImportance()), "anchor='old'"),
      (dict(gate=gates.GeometricMean(), level='sequence'), 'works on tokens'),
      (dict(gate=gates.Unweighted(), bounds=None, level='sequence'),
       'works on tokens'),
      (dict(gate=gates.ClippedWeight(), penalty=Penalty(
          toward='anchor', placement='inside')), "placement='beside'"))
  def test_is_refused(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      LossSpec(**options)

  def test_says_what_it_needs(self):
    plain = LossSpec()
    self.assertFalse(
        plain.needs_reference or plain.needs_old or plain.needs_rewards)
    spec = LossSpec(
        bounds=bounds.GroupAdaptive(), anchor='old', penalty=Penalty(),
        mismatch=IcePop())
    self.assertTrue(
        spec.needs_reference and spec.needs_old and spec.needs_rewards)
    toward_anchor = LossSpec(penalty=Penalty(toward='anchor'))
    self.assertFalse(toward_anchor.needs_reference)

  def test_equal_points_are_equal_and_hashable(self):
    one, two = LossSpec(), LossSpec(bounds=bounds.Fixed(0.2, 0.2))
    self.assertEqual(one, two)
    self.assertEqual(hash(one), hash(two))
    self.assertNotEqual(one, LossSpec(reduction=TokenMean()))

  def test_corrections_are_checked(self):
    for make in (lambda: TruncatedImportance(0.0), lambda: IcePop(1.5, 5.0)):
      with self.assertRaises(ValueError):
        make()


if __name__ == '__main__':
  absltest.main()
