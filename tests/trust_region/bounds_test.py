"""Bounds against the tables, and what they refuse."""
import dataclasses
import math

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip import types
from rlclip.trust_region import bounds

K = 8


def _widths(rule, correct, reward=1.0, low=0.0, k=K):
  """1 - low and high - 1 of a sample with this reward, c of k at 1."""
  mean = (correct + (k - correct) * low) / k
  row = lambda x: jnp.float32([[x]])
  region = rule(bounds.BoundsInputs(
      row(0), row(0), row(0), jnp.ones((1, 1), bool), row(reward), row(mean),
      jnp.full((1, 1), k)))
  return tuple(float(jnp.expm1(end).squeeze()) * sign
               for end, sign in zip(region, (-1, 1)))


def _adaptive(rule, correct, **sample):
  """Upper bound minus 1; the lower bound stays."""
  low, high = _widths(rule, correct, **sample)
  np.testing.assert_allclose(low, rule.eps_low, rtol=1e-5)
  return high


def _tokens(log_ratio, logps, **others):
  """One row of tokens, all of them sampled."""
  row = lambda x: jnp.asarray(x, jnp.float32).reshape(1, -1)
  d = row(log_ratio)
  return bounds.BoundsInputs(
      jnp.ones((1, 1)), d, jnp.broadcast_to(row(logps), d.shape),
      jnp.ones(d.shape, bool), **others)


def _outside(rule, inputs):
  region = rule(inputs)
  return np.asarray(region.below(inputs.log_ratio) |
                    region.above(inputs.log_ratio))[0]


SHAPES = ('linear', 'exact', 'exp', 'normalized', 'harmonic')


class GroupAdaptiveTest(parameterized.TestCase):

  @parameterized.parameters(
      (.2, .28, (.28, .2686, .2571, .2457, .2343, .2229, .2114, .2), 5e-5),
      (3e-3, 5e-3, (.005, .004714, .004429, .004143, .003857, .003571, .003286,
                    .003), 5e-7),
      (7e-5, 3e-4, (3e-4, 2.6714e-4, 2.3429e-4, 2.0143e-4, 1.6857e-4,
                    1.3571e-4, 1.0286e-4, 7e-5), 5e-9),
      (.2, .28, (.28, .2356, .2, .2, .2, .2, .2, .2), 5e-5, 'exp'),
      (.2, .28, (.28, .2673, .2551, .2433, .2319, .2209, .2103, .2), 5e-5,
       'exact'),
      (.2, .28, (.28, .2343, .2190, .2114, .2069, .2038, .2016, .2), 5e-5,
       'harmonic'),
      (.2, .28, (.2740, .2260, .2, .2, .2, .2, .2, .2), 5e-5, 'normalized'),
      # The same with a floor of 0, which shows the rest of the row.
      (0, .28, (.2740, .2260, .1815, .1401, .1015, .0655, .0317, 0), 5e-5,
       'normalized'),
      (0, .28, (.28, .2356, .1928, .1515, .1116, .0731, .0359, 0), 5e-5,
       'exp'))
  def test_table_at_k_8(self, low, high, table, tolerance, shape='linear'):
    rule = bounds.GroupAdaptive(low, high, shape=shape)
    got = [_adaptive(rule, correct) for correct in range(1, K + 1)]
    np.testing.assert_allclose(got, table, atol=tolerance)
    self.assertLessEqual(max(got), rule.interval()[1] - 1 + 1e-6)

  @parameterized.parameters(*SHAPES)
  def test_a_wrong_answer_keeps_the_narrow_bound(self, shape):
    rule = bounds.GroupAdaptive(0.2, 0.28, shape=shape)
    for correct in range(K):  # also of a group without any success
      got = _adaptive(rule, correct, reward=0.0)
      self.assertAlmostEqual(got, 0.2, places=6)

  @parameterized.parameters(*SHAPES)
  def test_the_range_of_rewards_is_taken_out(self, shape):
    plain = bounds.GroupAdaptive(0.2, 0.28, shape=shape)
    signed = dataclasses.replace(plain, reward_range=2.0)
    for correct in range(1, K + 1):
      self.assertAlmostEqual(
          _adaptive(signed, correct, low=-1.0), _adaptive(plain, correct),
          places=6)

  def test_a_reward_between_gets_the_room_of_its_advantage(self):
    # a = .5 - 1/8 = .375, a_max = 7/8: s = 3/7, .2 + .08 * 3/7.
    got = _adaptive(bounds.GroupAdaptive(0.2, 0.28), 1, reward=0.5)
    self.assertAlmostEqual(got, 0.2 + 0.08 * 3 / 7, places=6)
    # c = 8 - 7 * 3/7 = 5, as of a success among five: see the table.
    rule = bounds.GroupAdaptive(0.2, 0.28, shape='harmonic')
    self.assertAlmostEqual(
        _adaptive(rule, 1, reward=0.5), 0.2069, delta=5e-5)

  @parameterized.parameters(*SHAPES)
  def test_a_group_of_one_or_without_scores_keeps_the_narrow_bound(
      self, shape):
    rule = bounds.GroupAdaptive(0.2, 0.28, shape=shape, adapt_negative=True)
    for sample in (dict(correct=1, k=1), dict(correct=4, reward=np.nan),
                   dict(correct=np.nan, reward=np.nan)):
      np.testing.assert_allclose(_widths(rule, **sample), 0.2, rtol=1e-5)

  def test_rows_without_a_score_do_not_count(self):
    # 2 of 4 scored rows, where the group has 8: (4 - 2) / (4 - 1) = 2 / 3.
    got = _adaptive(bounds.GroupAdaptive(0.2, 0.28), 2, k=4)
    self.assertAlmostEqual(got, 0.2 + 0.08 * 2 / 3, places=6)

  def test_failures_adapt_where_asked(self):
    # 1 - exp(-c / (k lambda)), lambda = (7/8) / log(1 + eps_high).
    rule = bounds.GroupAdaptive(0.1, 0.28, adapt_negative=True)
    for correct in range(K):
      low, high = _widths(rule, correct, reward=0.0)
      want = 1 - math.exp(-correct / 7 * math.log(1.28))
      self.assertAlmostEqual(low, max(want, 0.1), places=6)
      self.assertAlmostEqual(high, 0.1, places=6)
      self.assertAlmostEqual(_widths(rule, correct + 1)[0], 0.1, places=6)
    self.assertAlmostEqual(rule.interval()[0], 1 / 1.28, places=12)

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
                 lambda: bounds.FromDivergence('no_such', 0.1),
                 lambda: bounds.GroupAdaptive(shape='square'),
                 lambda: bounds.ProbabilityAdaptive(max_ratio=1.0),
                 lambda: bounds.BinaryTotalVariation(0.0),
                 lambda: bounds.BinaryKL(direction='sideways'),
                 lambda: bounds.ExactDivergence('no_such'),
                 lambda: bounds.TopKDivergence(top_k=0),
                 lambda: bounds.TopKDivergence(top_k=2.5),
                 lambda: bounds.BatchBalanced(1.0),
                 lambda: bounds.BatchBalanced(low_range=(0.9, 0.6)),
                 lambda: bounds.BatchBalanced(counts='some'),
                 lambda: bounds.Intersection('fixed', bounds.Fixed())):
      with self.assertRaises(ValueError):
        make()


# Probability of the token, then low and high by rule, as printed: 0 is 0.0000.
TABLE = (
    (1e-4, (0, 494.6), (0, 129.05), (0, 1501), (.5, 10)),
    (.01, (.0025, 7.81), (0, 5.51), (0, 16), (.5, 5)),
    (.1, (.3128, 2.2008), (.2076, 2.0673), (0, 2.5), (.5, 2)),
    (.3, (.5709, 1.5153), (.5441, 1.5009), (.5, 1.5), (.5, 1.4574)),
    (.5, (.6915, 1.3085), (.6864, 1.3136), (.7, 1.3), (.5, 1.3062)),
    (.9, (.8666, 1.0764), (.8814, 1.0880), (.8333, 1.1667), (.7687, 1.1872)),
    (.99, (.9312, 1.0101), (.9544, 1.0101), (.8485, 1.1515), (.7973, 1.1723)))
BY_PROBABILITY = (
    bounds.BinaryKL(0.05), bounds.BinaryKL(0.05, 'reverse'),
    bounds.BinaryTotalVariation(0.15), bounds.ProbabilityAdaptive(0.16, 0.2))


def _half_a_digit(printed):
  return 0.51 * 10.0 ** -(len(str(printed).partition('.')[2]) or 4)


class ProbabilityTest(parameterized.TestCase):

  @parameterized.product(row=TABLE, column=(0, 1, 2, 3))
  def test_table(self, row, column):
    probability, *ends = row
    rule, (low, high) = BY_PROBABILITY[column], ends[column]
    got = rule.interval(probability)
    self.assertAlmostEqual(got[0], low, delta=5.1e-5)
    self.assertAlmostEqual(got[1], high, delta=_half_a_digit(high))
    # The verdict turns there, on the device as on the host.
    w = np.array([got[0] * .9995, got[0] * 1.0005, got[1] * .9995])
    inputs = _tokens(np.log(w + 1e-9), math.log(probability))
    beyond = got[0] > 1e-6
    np.testing.assert_array_equal(
        _outside(rule, inputs), [beyond, False, False])
    if got[1] < 0.999 / probability:  # no ratio is larger than 1 / q
      inputs = _tokens([math.log(got[1] * 1.0005)], math.log(probability))
      self.assertTrue(_outside(rule, inputs).all())

  @parameterized.product(
      delta=(0.05, 1e-3, 1e-5), direction=('forward', 'reverse'))
  def test_binary_kl_is_the_textbook_in_float64(self, delta, direction):
    rng = np.random.default_rng(0)
    q = np.concatenate([10 ** rng.uniform(-6, -.5, 4000),
                        1 - 10 ** rng.uniform(-4, -.5, 4000)])
    q = np.exp(np.float32(np.log(q)).astype(np.float64))
    # Half of the tokens move a little, half by up to all there is.
    p = np.where(rng.random(q.size) < .5, q * np.exp(rng.normal(0, .1, q.size)),
                 rng.random(q.size))
    d = np.float32(np.log(np.minimum(p, 1 - 1e-6) / q)).astype(np.float64)
    p = np.minimum(q * np.exp(d), 1 - 1e-9)
    one, two = (q, p) if direction == 'forward' else (p, q)
    value = one * np.log(one / two) + (1 - one) * np.log((1 - one) / (1 - two))
    got = _outside(bounds.BinaryKL(delta, direction), _tokens(d, np.log(q)))
    sure = np.abs(value / delta - 1) > 1e-3
    self.assertGreater(sure.mean(), 0.95)
    np.testing.assert_array_equal(got[sure], value[sure] > delta)

  def test_dcpo_bounds_the_ratio_times_the_change_of_probability(self):
    # w |w - 1| q <= eps, for w >= 1/2 and below the cap.
    rng = np.random.default_rng(0)
    d = rng.uniform(math.log(.5001), math.log(9.999), 5000)
    logps = np.log(rng.uniform(1e-4, 1, d.size))
    value = np.exp(d) * np.abs(np.expm1(d)) * np.exp(logps)
    eps = np.where(d < 0, 0.16, 0.2)
    got = _outside(bounds.ProbabilityAdaptive(), _tokens(d, logps))
    sure = np.abs(value - eps) > 1e-5
    np.testing.assert_array_equal(got[sure], (value > eps)[sure])
    self.assertTrue(0.1 < got.mean() < 0.9)


class ExactTest(parameterized.TestCase):

  def test_the_distribution_decides_and_the_ratio_directs(self):
    rule = bounds.ExactDivergence('forward_kl', 0.02)
    (statistic,) = rule.needs
    self.assertEqual(statistic, types.Statistic('forward_kl', 'anchor'))
    inputs = _tokens([-.1, .1, 0., -9., 9.], -1.0, statistics={
        statistic: jnp.float32([[.021, .021, .021, .019, .019]])})
    region = rule(inputs)
    np.testing.assert_array_equal(
        region.below(inputs.log_ratio), [[1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(
        region.above(inputs.log_ratio), [[0, 1, 0, 0, 0]])

  def test_top_k_asks_for_its_own_statistic(self):
    rule = bounds.TopKDivergence('total_variation', 0.15, top_k=5)
    statistic = types.Statistic('total_variation', 'anchor', 5)
    self.assertEqual(rule.needs, (statistic,))
    inputs = _tokens([.1, .1], -1.0, width=jnp.float32(2.0), statistics={
        statistic: jnp.float32([[.29, .31]])})  # linear in the width
    np.testing.assert_array_equal(_outside(rule, inputs), [False, True])

  def test_a_missing_statistic_is_named(self):
    with self.assertRaisesRegex(ValueError, "measure='forward_kl'"):
      bounds.ExactDivergence()(_tokens([.1], -1.0))


class BatchBalancedTest(parameterized.TestCase):

  def _region(self, rule, log_ratio, advantages, mask=None):
    column = lambda x: jnp.asarray(x, jnp.float32)[:, None]
    d = column(log_ratio)
    mask = jnp.asarray(mask or [True] * len(d))[:, None]
    region = jax.jit(lambda d: rule(bounds.BoundsInputs(
        column(advantages), d, d, mask)))(d)
    return np.exp(region.log_low), np.exp(region.log_high)

  def test_stops_at_the_first_pair_that_reaches_the_share(self):
    # P = min(2, c_high), Q = 3: P / (P + Q) >= .4 from P = 2 on; .35 from
    # 1.6154 on, which on the grid is 1.65.
    w, advantages = np.log([2.0, 1.0]), [1.0, -3.0]
    for share, high in ((.4, 2.0), (.35, 1.65), (.2, 1.2)):
      got = self._region(bounds.BatchBalanced(share), w, advantages)
      np.testing.assert_allclose(got, (.6, high), rtol=1e-6)

  def test_as_published_the_lower_bound_never_reaches_the_share(self):
    # Q = 3 max(.7, c_low) grows; with 'kept' it is 0 from c_low = .72 on.
    w, advantages = np.log([1.0, 0.7]), [1.0, -3.0]
    for counts, low in (('clipped', .9), ('kept', .72)):
      got = self._region(
          bounds.BatchBalanced(counts=counts), w, advantages)
      np.testing.assert_allclose(got, (low, 3.0), rtol=1e-6)

  def test_a_batch_without_signal_keeps_the_narrowest_upper_bound(self):
    for advantages, mask in (([0., 0.], None), ([1., -9.], [False, False])):
      got = self._region(bounds.BatchBalanced(), [.5, .5], advantages, mask)
      np.testing.assert_allclose(got, (.6, 1.2), rtol=1e-6)


class ComposeTest(parameterized.TestCase):

  def test_intersection_and_union_of_two_measures(self):
    one, two = bounds.Fixed(0.2, 0.2), bounds.FromDivergence('forward_kl', .02)
    both, either = bounds.Intersection(one, two), bounds.Union(one, two)
    np.testing.assert_allclose(both.interval(), (.81310512, 1.2), atol=5e-9)
    np.testing.assert_allclose(either.interval(), (.8, 1.21354971), atol=5e-9)
    for rule in (both, either):
      np.testing.assert_allclose(
          np.exp(rule(None)), rule.interval(), rtol=1e-6)

  def test_verdicts_are_those_of_and_and_or(self):
    # Ends with a test, and two tests: KPop's pair of KLs.
    rng = np.random.default_rng(0)
    inputs = _tokens(rng.normal(0, .3, 5000), np.log(rng.random(5000)))
    kl = bounds.BinaryKL(0.1), bounds.BinaryKL(0.1, 'reverse')
    for first, second in (kl, (bounds.Fixed(), kl[0]),
                          (bounds.Fixed(), bounds.Union(*kl))):
      one, two = _outside(first, inputs), _outside(second, inputs)
      self.assertTrue((one & ~two).any() and (two & ~one).any())
      np.testing.assert_array_equal(
          _outside(bounds.Intersection(first, second), inputs), one | two)
      np.testing.assert_array_equal(
          _outside(bounds.Union(first, second), inputs), one & two)

  def test_a_pair_needs_what_either_needs(self):
    pair = bounds.Union(
        bounds.Intersection(bounds.GroupAdaptive(), bounds.ExactDivergence()),
        bounds.Intersection(bounds.BatchBalanced(), bounds.ExactDivergence()))
    self.assertEqual(pair.needs, bounds.ExactDivergence().needs)
    self.assertTrue(pair.needs_rewards and pair.whole_batch and
                    pair.only_tokens and not pair.has_ends)
    plain = bounds.Intersection(bounds.Fixed(), bounds.Fixed(.1, .1))
    self.assertFalse(plain.needs_rewards or plain.whole_batch or
                     plain.only_tokens or plain.needs)
    self.assertTrue(plain.has_ends and plain.has_ends_at_any_width)


class WidthTest(parameterized.TestCase):

  @parameterized.parameters(
      (bounds.Fixed(.2, .28), bounds.Fixed(.3, .42)),
      (bounds.FixedBySign(.1, .2, .3, .4), bounds.FixedBySign(
          .15, .3, .45, .6)),
      (bounds.Fixed(.8, .2), bounds.Fixed(1.2, .3)),
      (bounds.Fixed(1., .2), bounds.Fixed(1., .3)),
      (bounds.FromDivergence('forward_kl', .02), bounds.FromDivergence(
          'forward_kl', .045)),
      (bounds.FromDivergence('renyi(order=2)', .2), bounds.FromDivergence(
          'renyi(order=2)', .45)),
      (bounds.FromDivergence('tv', .1), bounds.FromDivergence('tv', .15)),
      (bounds.FromDivergence('abslog', .2), bounds.FromDivergence(
          'abslog', .3)),
      (bounds.ProbabilityAdaptive(.16, .2), bounds.ProbabilityAdaptive(
          .24, .3)),
      (bounds.BinaryTotalVariation(.1), bounds.BinaryTotalVariation(.15)),
      (bounds.BinaryKL(.02), bounds.BinaryKL(.045)))
  def test_half_as_wide_again_is_the_rule_with_those_numbers(self, rule, wider):
    rng = np.random.default_rng(0)
    inputs = _tokens(rng.normal(0, .5, 20000), np.log(rng.random(20000)))
    traced = jax.jit(lambda width: _verdict(rule, inputs._replace(width=width)))
    differs = np.asarray(traced(jnp.float32(1.5)))[0] != _outside(wider, inputs)
    # A token in thousands may stand on an end, within rounding.
    self.assertLessEqual(differs.sum(), 2)


def _verdict(rule, inputs):
  region = rule(inputs)
  return region.below(inputs.log_ratio) | region.above(inputs.log_ratio)


if __name__ == '__main__':
  absltest.main()
