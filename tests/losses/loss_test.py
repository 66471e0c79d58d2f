"""Losses of batches and arrays: masks, shapes, limits, metrics, corrections."""
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip import algorithms, losses
from rlclip.losses import LossSpec, TokenMean
from rlclip.trust_region import bounds, gates
from rlclip.types import Batch, TokenStats

UNCLIPPED = LossSpec(bounds=None, gate=gates.Unclipped(), reduction=TokenMean())


def _one(spec, log_ratio, advantage=1.0, **more):
  """Loss, gradient and metrics of a single token."""
  zero = jnp.zeros((1, 1))
  f = lambda p: losses.from_arrays(
      spec, logps=p, behavior_logps=zero, advantages=jnp.float32([advantage]),
      mask=jnp.ones((1, 1), bool), **more)
  p = jnp.full((1, 1), log_ratio, jnp.float32)
  out = f(p)
  gradient = jax.grad(lambda p: f(p).loss.value())(p)
  return float(out.loss.value()), float(gradient[0, 0]), {
      k: float(v.value()) for k, v in out.metrics.items()}


class LimitTest(absltest.TestCase):

  def test_a_log_ratio_of_100_is_finite_counted_and_pushed_back(self):
    value, gradient, metrics = _one(UNCLIPPED, 100.0, advantage=-1.0)
    self.assertAlmostEqual(value, np.exp(20.0), delta=1e3)
    self.assertAlmostEqual(gradient, np.exp(20.0), delta=1e3)
    self.assertEqual(metrics['ratio/limited_mean'], 1.0)
    for far in (jnp.inf, -jnp.inf):
      value, gradient, _ = _one(UNCLIPPED, far, advantage=-1.0)
      self.assertTrue(np.isfinite(value) and np.isfinite(gradient))

  def test_below_the_limit_nothing_is_limited(self):
    value, _, metrics = _one(UNCLIPPED, 19.0)
    self.assertAlmostEqual(value / -np.exp(19.0), 1.0, places=5)
    self.assertEqual(metrics['ratio/limited_mean'], 0.0)


class ShapeTest(parameterized.TestCase):

  def _call(self, **changes):
    zeros = jnp.zeros((3, 2))
    arrays = dict(
        logps=zeros, behavior_logps=zeros, advantages=jnp.ones(3),
        mask=jnp.ones((3, 2), bool))
    return losses.from_arrays(UNCLIPPED, **{**arrays, **changes})

  @parameterized.parameters((3, 1), (3, 2), (1,), (2,), ())
  def test_advantages_are_one_a_row_and_never_broadcast(self, *shape):
    with self.assertRaisesRegex(ValueError, r'advantages must have shape \(3,'):
      self._call(advantages=jnp.ones(shape))

  def test_the_right_shape_is_taken(self):
    self.assertEqual(float(self._call().loss.value()), -1.0)

  def test_other_shapes_and_types_are_checked(self):
    for name in ('behavior_logps', 'old_logps', 'reference_logps'):
      with self.assertRaisesRegex(ValueError, f'{name} must have shape'):
        self._call(**{name: jnp.zeros((3, 1))})
    with self.assertRaisesRegex(ValueError, 'mask must be bool'):
      self._call(mask=jnp.ones((3, 2)))
    with self.assertRaisesRegex(ValueError, 'need group'):
      self._call(rewards=jnp.zeros(3))
    with self.assertRaisesRegex(ValueError, 'rows by tokens'):
      self._call(logps=jnp.zeros(3))

  def test_what_the_rule_needs_has_to_come(self):
    zeros, mask = jnp.zeros((2, 2)), jnp.ones((2, 2), bool)
    for spec, name in ((algorithms.get('grpo'), 'reference_logps'),
                       (algorithms.get('dapo', anchor='old'), 'old_logps'),
                       (algorithms.get('gapo'), 'rewards')):
      with self.assertRaisesRegex(ValueError, name):
        losses.from_arrays(
            spec, logps=zeros, behavior_logps=zeros, mask=mask,
            advantages=jnp.zeros(2))


class AnchorTest(absltest.TestCase):

  def test_old_is_the_anchor_where_the_rule_says_so(self):
    old = jnp.full((1, 1), 0.5)
    value, _, metrics = _one(
        UNCLIPPED, 0.7, old_logps=old)
    self.assertAlmostEqual(value, -np.exp(0.7), places=5)
    self.assertNotIn('sampling/importance_sampling_ratio/mean', metrics)
    spec = LossSpec(bounds=None, gate=gates.Unclipped(), anchor='old')
    value, _, metrics = _one(spec, 0.7, old_logps=old)
    self.assertAlmostEqual(value, -np.exp(0.2), places=5)
    self.assertAlmostEqual(
        metrics['sampling/sampling_logp_difference/mean'], 0.5, places=6)
    self.assertAlmostEqual(
        metrics['sampling/importance_sampling_ratio/mean'], np.exp(0.5),
        places=5)

  def test_corrections_multiply_the_loss(self):
    for correction, old, weight in (
        (losses.TruncatedImportance(2.0), 0.5, np.exp(0.5)),
        (losses.TruncatedImportance(2.0), 1.0, 2.0),
        (losses.IcePop(0.5, 5.0), 1.0, np.exp(1.0)),
        (losses.IcePop(0.5, 5.0), 2.0, 0.0),
        (losses.IcePop(0.5, 5.0), -1.0, 0.0)):
      spec = LossSpec(bounds=None, gate=gates.Unclipped(), anchor='old',
                      mismatch=correction)
      value, gradient, metrics = _one(
          spec, old, old_logps=jnp.full((1, 1), old))
      self.assertAlmostEqual(value, -weight, places=5)
      self.assertAlmostEqual(gradient, -weight, places=5)
      self.assertEqual(metrics['sampling/corrected_mean'],
                       float(not np.isclose(weight, np.exp(old))))


class GroupTest(absltest.TestCase):

  def test_rewards_and_groups_draw_the_adaptive_bound(self):
    # Groups {0, 2, 4, 6} with one success, {1, 3, 5, 7} with three.
    rewards = jnp.float32([1, 1, 0, 1, 0, 1, 0, 0])
    spec = LossSpec(bounds=bounds.GroupAdaptive(0.2, 0.28),
                    reduction=TokenMean())
    out = losses.from_arrays(
        spec, logps=jnp.full((8, 1), jnp.log(2.0)),
        behavior_logps=jnp.zeros((8, 1)), mask=jnp.eye(8, 1, dtype=bool),
        advantages=jnp.ones(8), rewards=rewards,
        group=jnp.array([7, 3] * 4))
    # Only row 0 counts: (k - c) / (k - 1) = 1, so its bound is 1.28.
    self.assertAlmostEqual(float(out.loss.value()), -1.28, places=5)
    row_1 = losses.from_arrays(
        spec, logps=jnp.full((8, 1), jnp.log(2.0)),
        behavior_logps=jnp.zeros((8, 1)),
        mask=jnp.eye(8, 1, -1, dtype=bool), advantages=jnp.ones(8),
        rewards=rewards, group=jnp.array([7, 3] * 4))
    # c = 3 of 4: .2 + .08 / 3.
    self.assertAlmostEqual(float(row_1.loss.value()), -1.2 - .08 / 3, places=5)

  def test_a_row_without_reward_leaves_group_and_loss(self):
    spec = LossSpec(bounds=bounds.GroupAdaptive(0.2, 0.28),
                    reduction=TokenMean())
    out = losses.from_arrays(
        spec, logps=jnp.full((8, 1), jnp.log(2.0)),
        behavior_logps=jnp.zeros((8, 1)), mask=jnp.ones((8, 1), bool),
        advantages=jnp.ones(8), rewards=jnp.float32([1, 0, 0] + [np.nan] * 5),
        group=jnp.zeros(8, int))
    # One success of three: 1.28 for it, 1.2 for the two others.
    np.testing.assert_allclose(out.loss, (-1.28 - 2 * 1.2, 3), rtol=1e-6)


class BatchTest(absltest.TestCase):

  def test_a_batch_gives_what_the_arrays_give(self):
    rng = np.random.default_rng(0)
    logps, behavior, reference, entropy = rng.normal(
        -1, 0.3, (4, 6, 5)).astype(np.float32)
    mask = np.arange(5) < np.array([5, 3, 1, 0, 4, 2])[:, None]
    rewards = np.float32([1, 0, 0, 1, 1, 0])
    advantages = rewards - np.float32([1, 1, 1, 2, 2, 2]) / 3
    batch = Batch(
        np.zeros((2, 3), int), np.ones(2, int), np.zeros((6, 5), int), mask,
        behavior, behavior, advantages, rewards, rewards - advantages,
        np.full(6, 3.0), np.zeros(6, bool))
    for name in ('gapo_token', 'grpo'):
      spec = algorithms.get(name)
      out = losses.make(spec)(
          TokenStats(logps, entropy), TokenStats(reference, entropy), batch)
      bare = losses.from_arrays(
          spec, logps=logps, behavior_logps=behavior, advantages=advantages,
          mask=mask, reference_logps=reference, rewards=rewards,
          group=np.array([0, 0, 0, 1, 1, 1]))
      np.testing.assert_allclose(out.loss, bare.loss, rtol=1e-6)
      np.testing.assert_allclose(
          out.metrics['entropy'].value(), entropy[mask].mean(), rtol=1e-6)
    with self.assertRaisesRegex(ValueError, 'needs the TokenStats'):
      losses.make(spec)(TokenStats(logps, entropy), None, batch)


class CompilationTest(absltest.TestCase):

  def test_a_rule_compiles_once_and_has_its_interval_inside_jit(self):
    spec = algorithms.get('atr_grpo', divergence='jeffreys', delta=.05)
    traces = []

    @jax.jit
    def step(logps):
      traces.append(1)
      return losses.from_arrays(
          spec, logps=logps, behavior_logps=jnp.zeros((2, 3)),
          advantages=jnp.float32([1, -1]), mask=jnp.ones((2, 3), bool))

    logps = jnp.log(jnp.float32([[1.5, 1.5, 1.0], [0.5, 0.5, 0.9]]))
    # Jeffreys at 0.05: both ends solve (w - 1) log(w) / 2 = 0.05.
    high, low = 1.3409001, 0.7090992
    for _ in range(3):
      out = step(logps)
    self.assertLen(traces, 1)
    np.testing.assert_allclose(
        out.loss.value(), (-(2 * high + 1) + (2 * low + 0.9)) / 6, rtol=1e-5)


class MetricsTest(absltest.TestCase):

  def test_kl_is_the_weighted_estimate_toward_the_reference(self):
    # One token at p = sampler, r = p / ref = 2: w k3(1/2) = log 2 - 1/2.
    _, _, metrics = _one(
        UNCLIPPED, 0.0, reference_logps=jnp.full((1, 1), -np.log(2.0)))
    self.assertAlmostEqual(metrics['kl'], np.log(2.0) - 0.5, places=6)

  def test_clip_shares_are_of_tokens(self):
    ratios = np.log([[1.5, 1.5, 1.0], [0.5, 0.5, 0.9]])
    out = losses.from_arrays(
        LossSpec(), logps=jnp.asarray(ratios), behavior_logps=jnp.zeros((2, 3)),
        advantages=jnp.float32([1, -1]),
        mask=jnp.array([[True, True, True], [True, False, True]]))
    got = {k: float(v.value()) for k, v in out.metrics.items()}
    self.assertAlmostEqual(got['clip_ratio/high_mean'], 2 / 5)
    self.assertAlmostEqual(got['clip_ratio/low_mean'], 1 / 5)
    self.assertAlmostEqual(got['clip_ratio/region_mean'], 3 / 5)
    self.assertAlmostEqual(
        got['ratio/mean'], (1.5 + 1.5 + 1 + .5 + .9) / 5, places=6)


if __name__ == '__main__':
  absltest.main()
