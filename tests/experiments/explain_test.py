"""Everything with a name can be explained, and the table says what is true."""
import contextlib
import io

from absl import app
from absl.testing import absltest, parameterized
import numpy as np

from experiments import explain
from rlclip import algorithms, divergences
from rlclip.trust_region import bounds, gates

NAMES = (*algorithms.names(), *divergences.names(), *gates.REGISTRY,
         *bounds.REGISTRY)


class ExplainTest(parameterized.TestCase):

  def test_no_two_kinds_share_a_name(self):
    self.assertLen(set(NAMES), len(NAMES))

  @parameterized.parameters(*NAMES)
  def test_everything_named_is_found_with_source(self, name):
    _, text, spec = explain.find(name)
    self.assertIn('Source:', text)
    self.assertTrue(hash(spec) is not None)

  def test_prints_axes_interval_and_table(self):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
      explain.main(['explain', 'atr_grpo'])
    text = out.getvalue()
    self.assertIn('[0.813105, 1.21355]', text)
    self.assertIn('second-hand', text)
    # w = 2 is outside: no gradient where A = +1, the whole where A = -1.
    line = next(x for x in text.splitlines() if x.strip().startswith('2.000'))
    self.assertEqual(
        line.split(), ['2.000', '-1.2135', '0.0000', '2.0000', '2.0000'])

  def test_a_divergence_shows_its_intervals(self):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
      explain.main(['explain', 'alpha(order=2)'])
    self.assertIn('f(w) <= 0.02   [0.800000, 1.200000]', out.getvalue())

  def test_gradient_map_of_gapo_gives_success_more_room(self):
    spec = algorithms.get('gapo_token', eps_low=0.1, eps_high=0.5)
    _, gradient = explain.gradient_map(spec)
    at = dict(zip(explain.RATIOS, np.round(gradient, 4).tolist()))
    self.assertAlmostEqual(at[1.3][0], -1.3, places=5)
    self.assertEqual(at[2][0], 0.0)
    self.assertEqual(at[.81][1], 0.0)

  def test_an_unknown_name_lists_the_known_ones(self):
    with self.assertRaisesRegex(app.UsageError, 'atr_grpo'):
      explain.find('atr')


if __name__ == '__main__':
  absltest.main()
