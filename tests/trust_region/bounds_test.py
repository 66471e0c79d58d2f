"""Bounds against the tables, and what they refuse."""
import math

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from rlclip.trust_region import bounds

K = 8


def _adaptive(rule, correct, reward=1.0, low=0.0, k=K):
  """Upper bound minus 1 of a sample with this reward, c of k at 1."""
  mean = (correct + (k - correct) * low) / k
  row = lambda x: jnp.float32([[x]])
  region = rule(bounds.BoundsInputs(
      row(0), row(0), row(0), jnp.ones((1, 1), bool), row(reward), row(mean),
      k))
  np.testing.assert_allclose(region.log_low, math.log1p(-rule.eps_low))
  return float(jnp.expm1(region.log_high)[0, 0])


class GroupAdaptiveTest(parameterized.TestCase):

  @parameterized.parameters(
      (.2, .28, (.28, .2686, .2571, .2457, .2343, .2229, .2114, .2), 5e-5),
      (3e-3, 5e-3, (.005, .004714, .004429, .004143, .003857, .003571, .003286,
                    .003), 5e-7),
      (7e-5, 3e-4, (3e-4, 2.6714e-4, 2.3429e-4, 2.0143e-4, 1.6857e-4,
                    1.3571e-4, 1.0286e-4, 7e-5), 5e-9))
  def test_equation_11_at_k_8(self, low, high, table, tolerance):
    rule = bounds.GroupAdaptive(low, high)
    got = [_adaptive(rule, correct) for correct in range(1, K + 1)]
    np.testing.assert_allclose(got, table, atol=tolerance)

  def test_a_wrong_answer_keeps_the_narrow_bound(self):
    rule = bounds.GroupAdaptive(0.2, 0.28)
    for correct in range(K):
      got = _adaptive(rule, correct, reward=0.0)
      self.assertAlmostEqual(got, 0.2, places=6)

  def test_the_range_of_rewards_is_taken_out(self):
    plain = bounds.GroupAdaptive(0.2, 0.28)
    signed = bounds.GroupAdaptive(0.2, 0.28, reward_range=2.0)
    for correct in range(1, K + 1):
      self.assertAlmostEqual(
          _adaptive(signed, correct, low=-1.0), _adaptive(plain, correct),
          places=6)

  def test_a_group_of_one_keeps_the_narrow_bound(self):
    got = _adaptive(bounds.GroupAdaptive(0.2, 0.28), 1, k=1)
    self.assertAlmostEqual(got, 0.2, places=6)

  def test_equal_widths_are_an_error(self):
    with self.assertRaisesRegex(ValueError, 'Use Fixed'):
      bounds.GroupAdaptive(0.2, 0.2)


class StaticTest(parameterized.TestCase):

  def test_from_divergence_is_the_interval(self):
    rule = bounds.FromDivergence('forward_kl', 0.02)
    np.testing.assert_allclose(
        np.exp(rule(None)), (.81310512, 1.21354971), atol=5e-9)

  @parameterized.parameters(
      ('pearson', 0.02), ('total_variation', 0.1), ('pearson', 0.5))
  def test_pearson_and_total_variation_draw_the_interval_of_ppo(
      self, name, delta):
    eps = math.sqrt(2 * delta) if name == 'pearson' else 2 * delta
    np.testing.assert_allclose(
        bounds.FromDivergence(name, delta)(None),
        bounds.Fixed(eps, eps)(None), rtol=1e-12)

  def test_from_a_width_of_one_on_there_is_no_lower_bound(self):
    self.assertEqual(bounds.Fixed(10.0, 0.2)(None).log_low, -math.inf)

  def test_four_bounds_follow_the_sign_of_the_advantage(self):
    rule = bounds.FixedBySign(.1, .2, .3, .4)
    advantages = jnp.float32([[1], [-1], [0]])
    region = rule(bounds.BoundsInputs(advantages, None, None, None))
    np.testing.assert_allclose(
        jnp.exp(region.log_low)[:, 0], [.9, .7, .7], rtol=1e-6)
    np.testing.assert_allclose(
        jnp.exp(region.log_high)[:, 0], [1.2, 1.4, 1.4], rtol=1e-6)

  def test_nonsense_is_refused(self):
    for make in (lambda: bounds.Fixed(-0.1, 0.2),
                 lambda: bounds.Fixed(math.nan, 0.2),
                 lambda: bounds.Fixed(1.0, math.inf),
                 lambda: bounds.FromDivergence('forward_kl', 0.0),
                 lambda: bounds.FromDivergence('forward_kl', math.inf),
                 lambda: bounds.FromDivergence('no_such', 0.1)):
      with self.assertRaises(ValueError):
        make()


if __name__ == '__main__':
  absltest.main()
