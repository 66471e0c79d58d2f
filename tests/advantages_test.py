"""Advantages by hand, and what every estimator does with missing rewards."""
from absl.testing import absltest, parameterized
import numpy as np

from rlclip import advantages

NAN = np.nan


class ContractTest(parameterized.TestCase):

  @parameterized.parameters(*advantages.names())
  def test_a_missing_reward_changes_nothing_for_the_others(self, name):
    full = advantages.get(name)(np.array([[1.0, 0, 0], [1, 1, 0]]))
    got = advantages.get(name)(np.array([[1.0, 0, NAN, 0], [1, 1, NAN, 0]]))
    self.assertEqual(got.dtype, np.float32)
    np.testing.assert_array_equal(got[:, [0, 1, 3]], full)
    np.testing.assert_array_equal(got[:, 2], 0)

  @parameterized.parameters(*advantages.names())
  def test_a_batch_without_any_reward_has_no_signal(self, name):
    got = advantages.get(name)(np.full((2, 3), NAN))
    np.testing.assert_array_equal(got, np.zeros((2, 3)))

  @parameterized.parameters(*(n for n in advantages.names() if n != 'batch'))
  def test_constant_groups_have_exactly_no_signal(self, name):
    # The mean of seven floats 0.1 is not 0.1.
    value = 1.0 if name.startswith('f_grpo') else 0.1
    got = advantages.get(name)(np.full((3, 7), value))
    np.testing.assert_array_equal(got, np.zeros((3, 7)))

  @parameterized.parameters(*(n for n in advantages.names() if n != 'batch'))
  def test_a_group_of_one_is_an_error(self, name):
    with self.assertRaisesRegex(ValueError, r'G >= 2, got \(4, 1\)'):
      advantages.get(name)(np.ones((4, 1)))

  @parameterized.parameters(*advantages.names())
  def test_is_documented_with_its_source(self, name):
    self.assertIn('Source:', advantages.get(name).__doc__)


class NumbersTest(absltest.TestCase):

  def test_group_mean_is_one_minus_the_success_rate(self):
    got = advantages.group_mean(np.array([[1.0, 0, 0, 0]]))
    np.testing.assert_array_equal(got, [[0.75, -0.25, -0.25, -0.25]])

  def test_zscore_has_one_degree_of_freedom_less(self):
    # Mean 1/4; variance (9/16 + 3/16) / 3 = 1/4.
    got = advantages.group_zscore(np.array([[1.0, 0, 0, 0]]), epsilon=0)
    np.testing.assert_allclose(got, [[1.5, -0.5, -0.5, -0.5]], rtol=1e-7)

  def test_epsilon_is_added_to_the_std(self):
    got = advantages.group_zscore(np.array([[1.0, 0, 0, 0]]), epsilon=0.5)
    np.testing.assert_allclose(got, [[0.75, -.25, -.25, -.25]], rtol=1e-7)

  def test_leave_one_out_compares_with_the_others(self):
    got = advantages.leave_one_out(np.array([[3.0, 1.0, 2.0]]))
    np.testing.assert_allclose(got, [[1.5, -1.5, 0.0]], atol=1e-7)

  def test_batch_ignores_groups(self):
    # Mean 1/2, variance 4 (1/4) / 3 = 1/3.
    got = advantages.batch(np.array([[1.0, 1.0], [0.0, 0.0]]), epsilon=0)
    want = 0.5 * np.sqrt(3.0)
    np.testing.assert_allclose(got, [[want, want], [-want, -want]], rtol=1e-6)

  def test_reinforce_pp_baseline_divides_by_the_std_of_the_batch(self):
    # Centered: 1, -1, 0, 0; variance 2 / 3.
    got = advantages.reinforce_pp_baseline(
        np.array([[2.0, 0.0], [5.0, 5.0]]), epsilon=0)
    want = np.sqrt(1.5)
    np.testing.assert_allclose(got, [[want, -want], [0, 0]], rtol=1e-6)

  def test_f_grpo_scales_centered_rewards_by_the_failure_rate(self):
    # Three of four right: (1 - 3/4)^2 = 1/16 of 1/4 and of -3/4.
    got = advantages.get('f_grpo(gamma=2)')(np.array([[1.0, 1, 1, 0]]))
    np.testing.assert_array_equal(got, np.array([[1, 1, 1, -3]]) / 64)

  def test_f_grpo_zscore_scales_zscores(self):
    # One of four right: 3/4 of 3/2 and of -1/2.
    got = advantages.f_grpo_zscore(np.array([[1.0, 0, 0, 0]]), epsilon=0)
    np.testing.assert_allclose(got, [[1.125] + [-0.375] * 3], rtol=1e-7)

  def test_f_grpo_counts_successes_and_takes_no_other_rewards(self):
    for name in ('f_grpo', 'f_grpo_zscore'):
      with self.assertRaisesRegex(ValueError, '0 or 1, got 0.5'):
        advantages.get(name)(np.array([[0.5, 1.0]]))

  def test_a_number_that_it_does_not_take_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'does not take gamma'):
      advantages.get('group_mean(gamma=2)')

  def test_text_that_is_no_name_with_numbers_is_an_error(self):
    for text in ('f_grpo(', 'f_grpo(gamma)', 'f_grpo(gamma=x)', 'f_grpo()'):
      with self.assertRaisesRegex(ValueError, 'Expected a name'):
        advantages.get(text)


if __name__ == '__main__':
  absltest.main()
