"""What holds for every registered way to draw bounds, and for its options."""
import dataclasses
import functools
import inspect
import math

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.trust_region import bounds

# Every registered class at its defaults, and the options beyond them.
RULES = (*(bounds.REGISTRY[name]() for name in bounds.REGISTRY), *(
    bounds.GroupAdaptive(0.2, 0.28, shape=shape, adapt_negative=True)
    for shape in ('exact', 'normalized', 'harmonic')), *(
    bounds.FromDivergence(name, 0.1) for name in (
        'total_variation', 'absolute_log_ratio', 'pearson', 'renyi(order=2)',
        'alpha(order=-2)')),
    bounds.Fixed(1.0, 0.2), bounds.Fixed(0.2, math.inf),
    bounds.BinaryKL(1e-4), bounds.BinaryKL(direction='reverse'),
    bounds.ExactDivergence('total_variation', 0.05),
    bounds.BatchBalanced(counts='kept'), bounds.BatchBalanced(0.9),
    bounds.Intersection(bounds.BinaryKL(0.1),
                        bounds.BinaryKL(0.1, 'reverse')),
    bounds.Union(bounds.Intersection(bounds.GroupAdaptive(),
                                     bounds.ExactDivergence()),
                 bounds.BinaryTotalVariation()))
SHAPE = N, C = 64, 32
K = 8


def _inputs(rule, log_ratio, seed=0):
  """Rows of groups of K with every number of successes; q from 1e-12 to 1."""
  rng = np.random.default_rng(seed)
  rewards = (np.arange(N) % K < np.arange(N) // K + 1).astype(np.float32)
  mean = rewards.reshape(-1, K).mean(-1).repeat(K)
  rewards[0] = np.nan  # a row that could not be scored
  logps = rng.uniform(math.log(1e-12), 0, SHAPE)
  logps[:, :8] = np.log1p(-rng.uniform(0, 1e-2, (N, 8)))
  logps[:, 0] = 0.0
  array = lambda x: jnp.asarray(x, jnp.float32)
  return bounds.BoundsInputs(
      advantages=array(np.nan_to_num(rewards) - mean)[:, None],
      log_ratio=array(log_ratio), anchor_logps=array(logps),
      mask=jnp.asarray(rng.random(SHAPE) < 0.8),
      rewards=array(rewards)[:, None], group_mean=array(mean)[:, None],
      group_size=jnp.full((N, 1), K),
      statistics={s: array(rng.exponential(0.03, SHAPE)) for s in rule.needs})


def _random_ratios(scale, seed=0):
  rng = np.random.default_rng(seed)
  return np.clip(rng.normal(0, scale, SHAPE), -20, 20)


def _verdicts(rule, inputs):
  region = rule(inputs)
  return region.below(inputs.log_ratio), region.above(inputs.log_ratio)


def _outside(rule, inputs):
  return [np.broadcast_to(x, SHAPE) for x in _verdicts(rule, inputs)]


@functools.lru_cache(maxsize=None)
def _jitted(rule):
  return jax.jit(functools.partial(_verdicts, rule))


def _at_width(rule, inputs, width):
  """The verdicts with the width traced."""
  return [np.broadcast_to(x, SHAPE) for x in _jitted(rule)(
      inputs._replace(width=jnp.float32(width)))]


def _far_from_ends(rule, inputs):
  """Tokens that rounding cannot move over an end."""
  region, far = rule(inputs), np.ones(SHAPE, bool)
  for end in region:
    far &= np.abs(inputs.log_ratio - np.nan_to_num(end)) > 1e-5
  return far


def _has_numbers(region):
  """Whether an end is more than the verdict of a test."""
  return not all(np.isin(end, (0.0, -np.inf, np.inf)).all() for end in region)


class ContractTest(parameterized.TestCase):

  @parameterized.parameters(*RULES)
  def test_ratio_one_is_inside_whatever_the_rest_says(self, rule):
    for width in (1.0, jnp.float32(0.5)):
      inputs = _inputs(rule, np.zeros(SHAPE))._replace(width=width)
      # Far moved elsewhere in the batch, and beyond every budget here.
      inputs = inputs._replace(statistics={
          s: jnp.full(SHAPE, 9.0) for s in rule.needs})
      low, high = _outside(rule, inputs)
      self.assertFalse(low.any() or high.any())

  @parameterized.parameters(*RULES)
  def test_float32_without_nan_for_far_ratios_and_rare_tokens(self, rule):
    for scale in (1e-3, 20.0):
      inputs = _inputs(rule, _random_ratios(scale))
      for width in (1.0, jnp.float32(3.0)):
        for end in rule(inputs._replace(width=width)):
          self.assertEqual(jnp.result_type(end, jnp.float32), jnp.float32)
          self.assertFalse(np.isnan(end).any())

  @parameterized.parameters(*RULES)
  def test_the_ends_lie_on_their_sides_of_one(self, rule):
    region = rule(_inputs(rule, _random_ratios(1.0)))
    self.assertTrue((np.asarray(region.log_low) <= 0).all())
    self.assertTrue((np.asarray(region.log_high) >= 0).all())
    low, high = rule.interval()
    self.assertTrue(0 <= low <= 1 <= high)

  @parameterized.parameters(*RULES)
  def test_something_is_outside_and_something_is_not(self, rule):
    ratios = _random_ratios(1.0) * np.where(np.arange(C) % 2, 1, 1e-3)
    inputs = _inputs(rule, ratios)
    share = np.mean(np.logical_or(*_outside(rule, inputs)))
    self.assertBetween(share, 0.01, 0.99)

  @parameterized.parameters(*RULES)
  def test_masked_tokens_are_irrelevant(self, rule):
    inputs = _inputs(rule, _random_ratios(0.5))
    spoil = lambda x, value: jnp.where(inputs.mask, x, value)
    for value in (np.nan, np.inf, 3.0):
      spoiled = inputs._replace(
          log_ratio=spoil(inputs.log_ratio, value),
          anchor_logps=spoil(inputs.anchor_logps, value),
          statistics={k: spoil(v, value)
                      for k, v in inputs.statistics.items()})
      mask = np.asarray(inputs.mask)
      for got, want in zip(_outside(rule, spoiled), _outside(rule, inputs)):
        np.testing.assert_array_equal(got[mask], want[mask])

  @parameterized.parameters(*RULES)
  def test_a_traced_width_of_one_gives_the_same_verdicts(self, rule):
    for scale in (0.01, 0.3, 3.0):
      inputs = _inputs(rule, _random_ratios(scale))
      far = _far_from_ends(rule, inputs)
      self.assertGreater(far.mean(), 0.9)
      for got, want in zip(
          _at_width(rule, inputs, 1.0), _outside(rule, inputs)):
        np.testing.assert_array_equal(got[far], want[far])

  @parameterized.parameters(*RULES)
  def test_a_larger_width_widens_and_a_smaller_one_narrows(self, rule):
    inputs = _inputs(rule, _random_ratios(0.3))
    outside = [np.logical_or(*_at_width(rule, inputs, width))
               for width in (0.25, 1.0, 4.0)]
    for narrow, wide in zip(outside, outside[1:]):
      self.assertFalse((wide & ~narrow).any())
      self.assertGreater((narrow & ~wide).sum(), 0)

  @parameterized.parameters(*RULES)
  def test_what_it_says_of_itself_is_true(self, rule):
    inputs = _inputs(rule, _random_ratios(0.3))
    if rule.has_ends:
      self.assertTrue(_has_numbers(rule(inputs)))
    if rule.has_ends_at_any_width:
      self.assertTrue(_has_numbers(rule(inputs._replace(
          width=jnp.float32(1.0)))))
    if not rule.needs_rewards:
      rule(inputs._replace(rewards=None, group_mean=None, group_size=None))

  @parameterized.parameters(*RULES)
  def test_other_rows_matter_where_the_whole_batch_is_asked_for(self, rule):
    inputs = _inputs(rule, _random_ratios(0.3))
    whole, differs = rule(inputs), False
    for row in (8, 15):  # a success and a failure of one group
      alone = rule(jax.tree.map(
          lambda x: x[row:row + 1] if jnp.ndim(x) else x, inputs))
      for end, other in zip(whole, alone):
        differs |= not np.array_equal(
            np.broadcast_to(end, SHAPE)[row], np.broadcast_to(other, (1, C))[0])
    self.assertEqual(differs, rule.whole_batch)

  @parameterized.parameters(*bounds.REGISTRY)
  def test_is_frozen_documented_and_comparable(self, name):
    kind = bounds.REGISTRY[name]
    self.assertIn('Source:', inspect.getdoc(kind))
    for field in dataclasses.fields(kind):
      self.assertIn(f'  {field.name}: ', inspect.getdoc(kind))
    self.assertEqual(kind(), kind())
    self.assertEqual(hash(kind()), hash(kind()))
    with self.assertRaises(dataclasses.FrozenInstanceError):
      kind().delta = 1.0


if __name__ == '__main__':
  absltest.main()
