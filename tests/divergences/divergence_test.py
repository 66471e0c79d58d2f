"""Contract of every registered divergence, and the tables of its numbers."""
import math

from absl.testing import absltest, parameterized
import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from rlclip import divergences

# Every registered name, and several orders of those that have one.
ALL = (*divergences.names(), *(
    f'alpha(order={a})' for a in (-2, -1, 0, 0.25, 0.75, 1, 1.5, 2, 3)), *(
        f'renyi(order={a})' for a in (-2, 0, 0.25, 1, 2, 3)))
PER_SAMPLE = tuple(n for n in ALL if divergences.get(n).per_sample)
# f''(1) does not exist for these two.
KINKED = ('total_variation', 'absolute_log_ratio')
DELTAS = (1e-6, 1e-4, 0.02, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 50.0)


def _float64(function, *arrays):
  with jax.enable_x64(True):
    return np.asarray(function(*(jnp.asarray(a, jnp.float64) for a in arrays)))


def _policies(num, size, seed=0):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(2, num, size))
  return logits - special.logsumexp(logits, -1, keepdims=True)


class ContractTest(parameterized.TestCase):

  @parameterized.parameters(*ALL)
  def test_generator_is_zero_at_one_and_grows_away_from_it(self, name):
    f = divergences.get(name).generator
    self.assertEqual(float(f(jnp.float32(0))), 0.0)
    grid = np.linspace(-8, 8, 2001)
    values = _float64(f, grid)
    self.assertTrue((values >= 0).all())
    self.assertTrue((np.diff(values[grid <= 0]) < 0).all())
    self.assertTrue((np.diff(values[grid >= 0]) > 0).all())

  @parameterized.parameters(*(n for n in ALL if n not in KINKED))
  def test_second_derivative_at_one_is_one(self, name):
    # f(e^d) = d^2 / 2 + O(d^3): the mean over +-d has no third order.
    values = _float64(divergences.get(name).generator, [1e-3, -1e-3])
    np.testing.assert_allclose(values.mean() / 0.5e-6, 1, atol=1e-5)
    # D itself has that scale: moving q to q (1 +- c) costs c^2 / 2.
    change = 1e-3 * np.array([1.0, -1.0])
    both = np.log(0.5 * (1 + np.stack([change, -change])))
    exact = _float64(divergences.get(name).exact, both, np.log([[0.5, 0.5]]))
    np.testing.assert_allclose(exact / 0.5e-6, 1, atol=1e-5)

  @parameterized.parameters(*ALL)
  def test_power_is_the_growth_near_one(self, name):
    divergence = divergences.get(name)
    one, two = _float64(divergence.generator, [1e-4, 2e-4])
    self.assertAlmostEqual(math.log2(two / one), divergence.power, places=3)

  @parameterized.parameters(*ALL)
  def test_slope_is_the_derivative(self, name):
    divergence = divergences.get(name)
    d = np.array([-2.0, -0.3, -1e-2, 1e-2, 0.5, 2.0])
    step = 1e-6
    up = _float64(divergence.generator, d + step)
    down = _float64(divergence.generator, d - step)
    np.testing.assert_allclose(
        _float64(divergence.weight, d), (up - down) / (2 * step), atol=2e-8)

  @parameterized.parameters(*ALL)
  def test_gradient_of_the_generator_is_w_times_slope(self, name):
    divergence = divergences.get(name)
    d = jnp.float32([-2.0, -1e-3, 0.5])
    np.testing.assert_allclose(
        jax.vmap(jax.grad(divergence.generator))(d), divergence.weight(d),
        rtol=1e-6)

  @parameterized.parameters(*PER_SAMPLE)
  def test_exact_is_the_mean_of_the_generator_under_old(self, name):
    divergence = divergences.get(name)
    new, old = _policies(100, 7)
    mean = (np.exp(old) * _float64(divergence.generator, new - old)).sum(-1)
    np.testing.assert_allclose(
        _float64(divergence.exact, new, old), mean, rtol=1e-11, atol=1e-13)

  @parameterized.product(name=ALL, delta=DELTAS)
  def test_interval_ends_where_the_budget_is_used_up(self, name, delta):
    divergence = divergences.get(name)
    low, high = divergence.interval(delta)
    delta = float(_float64(divergence.budget, delta))
    self.assertLessEqual(0, low)
    self.assertLess(low, 1)
    self.assertLess(1, high)
    for end in (low, high):
      if 0 < end < math.inf:
        value = float(_float64(divergence.generator, math.log(end)))
        self.assertLessEqual(abs(value - delta), 1e-12 * max(1.0, delta))
    if low == 0:
      beyond = float(_float64(divergence.generator, -700.0))
      self.assertLessEqual(beyond, delta)

  @parameterized.parameters(*ALL)
  def test_interval_at_the_extremes(self, name):
    divergence = divergences.get(name)
    self.assertEqual(divergence.interval(0), (1.0, 1.0))
    self.assertEqual(divergence.interval(math.inf), (0.0, math.inf))
    for bad in (-1e-9, math.nan):
      with self.assertRaisesRegex(ValueError, 'delta >= 0'):
        divergence.interval(bad)

  @parameterized.parameters(*ALL)
  def test_float32_is_finite_at_the_limit_of_the_log_ratio(self, name):
    f = divergences.get(name).generator
    for d in (-20.0, 20.0):
      value, slope = jax.value_and_grad(f)(jnp.float32(d))
      self.assertTrue(np.isfinite(value) and np.isfinite(slope))
      # Away from 1 in either direction, descent comes back.
      self.assertGreater(float(slope) * d, 0)

  @parameterized.parameters(*ALL)
  def test_interval_works_while_a_function_is_traced(self, name):
    def low(x):
      return x * divergences.get(name).interval(0.04)[0]
    np.testing.assert_allclose(
        jax.jit(low)(1.0), divergences.get(name).interval(0.04)[0], rtol=1e-6)

  @parameterized.parameters(*divergences.names())
  def test_is_documented_with_its_source(self, name):
    self.assertIn('Source:', divergences.documentation(name))


# MATHS of the KL3 interval: delta, low, high.
KL3 = (
    (1e-6, .99858645, 1.00141488), (1e-4, .98592445, 1.01420888),
    (.001, .95594281, 1.04539050), (.005, .90330518, 1.10336074),
    (.01, .86516525, 1.14816512), (.017678, .82356407, 1.19999734),
    (.02, .81310512, 1.21354971), (.023144, .79999821, 1.23084460),
    (.03314, .76415380, 1.28000036), (.05, .71618946, 1.35040326),
    (.1, .61681683, 1.51622116), (.2, .49323942, 1.77224983),
    (.5, .30170956, 2.35767667), (1, .15859434, 3.14619322),
    (2, .05246910, 4.50524150))

# Every measure at delta = 0.02, except where said.
AT_002 = (
    ('forward_kl', .81311, 1.21355), ('reverse_kl', .80678, 1.20656),
    ('jeffreys', .81008, 1.20992), ('jensen_shannon', .80992, 1.21008),
    ('hellinger', .81, 1.21), ('pearson', .8, 1.2), ('neyman', .819, 1.221),
    ('squared_log_ratio', .81873, 1.22140),
    ('alpha(order=-2)', .82451, 1.22894), ('alpha(order=-1)', .819, 1.221),
    ('alpha(order=0.25)', .81157, 1.21176), ('alpha(order=0.5)', .81, 1.21),
    ('alpha(order=0.75)', .80841, 1.20827),
    ('alpha(order=1.5)', .80345, 1.20323), ('alpha(order=2)', .8, 1.2),
    ('alpha(order=3)', .79271, 1.19384))


class NumbersTest(parameterized.TestCase):

  @parameterized.parameters(*KL3)
  def test_kl3_interval(self, delta, low, high):
    got = divergences.get('kl3').interval(delta)
    np.testing.assert_allclose(got, (low, high), atol=5.1e-9)

  @parameterized.parameters(*AT_002)
  def test_interval_at_two_hundredths(self, name, low, high):
    got = divergences.get(name).interval(0.02)
    np.testing.assert_allclose(got, (low, high), atol=5.1e-6)

  @parameterized.parameters(
      (.1, .004690, .005361), (.2, .017678, .023144), (.28, .033140, .048504),
      (.3, .037636, .056675), (.4, .063528, .110826))
  def test_budget_of_a_width(self, eps, upper, lower):
    # delta_u = eps - log(1 + eps), delta_l = -eps - log(1 - eps).
    f = divergences.get('forward_kl')
    delta = eps - math.log1p(eps)
    self.assertAlmostEqual(delta, upper, places=6)
    self.assertAlmostEqual(f.interval(delta)[1], 1 + eps, places=12)
    delta = -eps - math.log1p(-eps)
    self.assertAlmostEqual(delta, lower, places=6)
    self.assertAlmostEqual(f.interval(delta)[0], 1 - eps, places=12)

  def test_total_variation_and_absolute_log_ratio(self):
    np.testing.assert_allclose(
        divergences.get('tv').interval(0.1), (0.8, 1.2), rtol=1e-15)
    np.testing.assert_allclose(
        divergences.get('abslog').interval(0.2), (.81873, 1.22140), atol=5e-6)

  @parameterized.parameters(
      ('reverse_kl', 1.0), ('jensen_shannon', 2 * math.log(2)),
      ('hellinger', 2.0), ('pearson', 0.5), ('total_variation', 0.5), *(
          (f'alpha(order={a})', 1 / a) for a in (0.25, 0.75, 1, 1.5, 3)),
      # budget(delta) = 1 / a.
      *((f'renyi(order={a})', math.log(a) / (a * (a - 1)))
        for a in (0.25, 0.5, 1.5, 3)))
  def test_no_lower_bound_from_here_on(self, name, delta):
    f = divergences.get(name)
    self.assertEqual(f.interval(delta)[0], 0.0)
    self.assertEqual(f.interval(delta * 1.000001)[0], 0.0)
    self.assertGreater(f.interval(delta * 0.99)[0], 0.0)

  @parameterized.parameters(
      ('forward_kl', -2), ('reverse_kl', -1), ('jeffreys', -1.5),
      ('jensen_shannon', -1.5), ('hellinger', -1.5), ('pearson', 0),
      ('neyman', -3), ('squared_log_ratio', -3), ('alpha(order=-2)', -4),
      ('alpha(order=0.25)', -1.75), ('alpha(order=3)', 1),
      ('renyi(order=3)', 1))
  def test_skew_is_minus_the_third_derivative(self, name, third):
    # (high - 1) - (1 - low) = -f'''(1) 2 delta / 3 + O(delta^2).
    delta = 1e-6
    low, high = divergences.get(name).interval(delta)
    skew = (high - 1) - (1 - low)
    self.assertAlmostEqual(skew / (2 * delta / 3), -third, places=4)

  @parameterized.parameters(-2, 0.25, 0.5, 2, 3)
  def test_renyi_is_the_textbook_divergence_over_its_order(self, order):
    new, old = _policies(100, 7)
    textbook = special.logsumexp(
        order * new + (1 - order) * old, -1) / (order - 1)
    renyi = divergences.get('renyi', order=order)
    np.testing.assert_allclose(
        order * _float64(renyi.exact, new, old), textbook, rtol=1e-12,
        atol=1e-15)
    # R <= delta says the same as D_alpha <= budget(delta).
    alpha = _float64(divergences.get('alpha', order=order).exact, new, old)
    np.testing.assert_allclose(
        _float64(renyi.budget, textbook / order), alpha, rtol=1e-12)

  @parameterized.parameters(-2, 0.25, 0.75, 3)
  def test_renyi_draws_the_interval_of_alpha_at_its_budget(self, order):
    # d_a = (exp((a - 1) delta) - 1) / (a (a - 1)), delta the textbook's.
    textbook = 0.3 * order
    budget = math.expm1((order - 1) * textbook) / (order * (order - 1))
    np.testing.assert_allclose(
        divergences.get('renyi', order=order).interval(0.3),
        divergences.get('alpha', order=order).interval(budget), rtol=1e-14)

  @parameterized.parameters(
      (-1, 'neyman'), (0, 'forward_kl'), (0.5, 'hellinger'), (1, 'reverse_kl'),
      (2, 'pearson'))
  def test_alpha_contains_the_others(self, order, name):
    d = np.linspace(-1, 1, 11)
    np.testing.assert_allclose(
        _float64(divergences.get('alpha', order=order).generator, d),
        _float64(divergences.get(name).generator, d), atol=1e-15)

  def test_closed_form_and_search_agree(self):
    for name in ('forward_kl', 'reverse_kl', 'hellinger', 'pearson', 'neyman'):
      f = divergences.get(name)
      for delta in (0.02, 0.3, 0.7, 1.5, 3.0):
        np.testing.assert_allclose(
            f.interval(delta), f._search(delta), atol=5e-13)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.named_parameters(
      ('equal', 0.0, 0.0), ('double', math.log(2.0), 0.34314575))
  def test_hellinger(self, log_ratio, expected):  # 2 (sqrt(2) - 1)^2
    f = self.variant(divergences.get('hellinger').generator)
    np.testing.assert_allclose(
        f(jnp.float32(log_ratio)), expected, rtol=1e-6, atol=1e-7)


class LookupTest(absltest.TestCase):

  def test_aliases(self):
    for alias, name in (('kl3', 'forward_kl'), ('rkl3', 'reverse_kl'),
                        ('tv', 'total_variation')):
      self.assertEqual(divergences.canonical(alias), name)

  def test_an_unknown_name_is_told_the_nearest(self):
    with self.assertRaisesRegex(ValueError, "Did you mean 'hellinger'"):
      divergences.get('helinger')

  def test_a_number_that_it_does_not_take_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'does not take order'):
      divergences.get('forward_kl', order=2)

  def test_orders_that_overflow_or_cancel_are_errors(self):
    for order in (5.0, 1.0001, math.nan):
      with self.assertRaisesRegex(ValueError, 'order'):
        divergences.get('alpha', order=order)

  def test_a_generator_alone_is_a_divergence(self):
    made = divergences.Divergence(generator=lambda d: 0.5 * jnp.expm1(d) ** 2)
    pearson = divergences.get('pearson')
    np.testing.assert_allclose(
        made.interval(0.02), pearson.interval(0.02), atol=1e-12)
    np.testing.assert_allclose(
        made.slope(jnp.float32(0.3)), math.expm1(0.3), rtol=1e-6)
    new, old = _policies(3, 5)
    np.testing.assert_allclose(
        made.exact(jnp.asarray(new), jnp.asarray(old)),
        pearson.exact(jnp.asarray(new), jnp.asarray(old)), rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
