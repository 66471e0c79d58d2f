"""Enumeration, distances and gradients of toys, by hand and by another way."""
from absl.testing import absltest, parameterized
import jax
import numpy as np

from rlclip import algorithms, divergences
from rlclip.losses import LossSpec, Penalty, SequenceSum, TokenMean
from rlclip.oracle import (distances, enumerate_sequences, exact_gradient,
                           expected_gradient, measure, objective, report,
                           sample_gradients, sequence_divergence,
                           token_divergence)
from rlclip.trust_region import bounds, gates

UNCLIPPED = LossSpec(bounds=None, gate=gates.Unclipped(), reduction=TokenMean())


def _tables(toy, num, scale=1.0, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(0, scale, (num, toy.num_rows, toy.num_tokens))


class EnumerationTest(absltest.TestCase):

  def test_probabilities_sum_to_one(self):
    for toy in (enumerate_sequences(3, 3), enumerate_sequences(3, 3, stop=0),
                enumerate_sequences(4, 1, num_contexts=3)):
      (logits,) = _tables(toy, 1)
      np.testing.assert_allclose(
          np.sum(toy.probabilities(logits)), 1, rtol=1e-6)

  def test_a_stop_token_ends_a_sequence_and_belongs_to_it(self):
    # 0, 10, 11 with stop 0; prefixes (), (1).
    toy = enumerate_sequences(2, 2, stop=0)
    self.assertEqual(toy.tokens[toy.mask].tolist(), [0, 1, 0, 1, 1])
    self.assertEqual(toy.mask.sum(-1).tolist(), [1, 2, 2])
    self.assertEqual(toy.num_rows, 2)

  def test_too_many_are_refused(self):
    with self.assertRaisesRegex(ValueError, '100,000'):
      enumerate_sequences(10, 6)
    toy = enumerate_sequences(8, 3)
    (logits,) = _tables(toy, 1)
    with self.assertRaisesRegex(ValueError, 'batches of 3'):
      sample_gradients(toy, [UNCLIPPED], logits, logits, batch_size=3,
                       advantages=np.zeros(len(toy.tokens)))

  def test_the_largest_toy_is_measured(self):
    toy = enumerate_sequences(8, 4)
    (logits,) = _tables(toy, 1)
    got = measure(toy, LossSpec(), logits, logits,
                  rewards=np.arange(len(toy.tokens)) % 2)
    self.assertEqual(got.expected.shape, (1 + 8 + 64 + 512, 8))
    self.assertLess(got.relative_bias, 1e-12)


class DistanceTest(parameterized.TestCase):

  def test_by_hand(self):
    p, q = np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.5, 0.25]])
    kl = 0.5 * np.log(2) - 0.25 * np.log(2)
    np.testing.assert_allclose(
        token_divergence('reverse_kl', p, q), [kl], rtol=1e-14)
    # q's likeliest token and the rest: (.25, .75) against (.5, .5).
    np.testing.assert_allclose(
        token_divergence('reverse_kl', p, q, top_k=1),
        [0.25 * np.log(0.5) + 0.75 * np.log(1.5)], rtol=1e-14)
    np.testing.assert_allclose(token_divergence(
        'total_variation', p, q, top_k=3), [0.25], rtol=1e-14)
    np.testing.assert_allclose(
        distances.entropy(p), [1.5 * np.log(2)], rtol=1e-6)

  @parameterized.parameters('forward_kl', 'reverse_kl')
  def test_kls_of_sequences_are_sums_over_prefixes(self, name):
    toy = enumerate_sequences(3, 3, stop=1)
    p, q = _tables(toy, 2)
    with jax.enable_x64(True):
      drawn = np.asarray(toy.probabilities(p if name == 'reverse_kl' else q))
    per_token = token_divergence(name, p, q)[toy.rows]
    np.testing.assert_allclose(
        sequence_divergence(toy, name, p, q),
        drawn @ np.where(toy.mask, per_token, 0).sum(1), rtol=1e-12)

  @parameterized.parameters(*divergences.names())
  def test_of_sequences_it_is_the_mean_over_the_target(self, name):
    toy = enumerate_sequences(3, 2, num_contexts=2)
    p, q = _tables(toy, 2, scale=0.5)
    if not divergences.get(name).per_sample:
      self.skipTest(f'{name} is no mean over samples.')
    with jax.enable_x64(True):
      log_p, log_q = (np.log(toy.probabilities(x)) for x in (p, q))
      values = np.asarray(divergences.get(name).generator(log_p - log_q))
    np.testing.assert_allclose(
        sequence_divergence(toy, name, p, q), np.exp(log_q) @ values,
        rtol=1e-12)


class GradientTest(parameterized.TestCase):

  def test_exact_gradient_by_differences(self):
    toy = enumerate_sequences(3, 2, stop=0)
    p, q = _tables(toy, 2)
    rewards = np.random.default_rng(1).normal(size=len(toy.tokens))
    terms = dict(rewards=rewards, measure='reverse_kl', beta=0.4,
                 target_logits=q)
    step = np.zeros_like(p)
    step[0, 1] = 1e-5
    above, below = (float(objective(toy, x, **terms))
                    for x in (p + step, p - step))
    slope = (above - below) / 2e-5
    np.testing.assert_allclose(
        exact_gradient(toy, p, **terms)[0, 1], slope, atol=1e-9)

  def test_token_penalty_toward_the_sampler_is_exact_in_the_whole_loss(self):
    toy = enumerate_sequences(3, 3)
    new, old = _tables(toy, 2, seed=1)
    zero = np.zeros(len(toy.tokens))
    spec = LossSpec(
        bounds=None, gate=gates.Unclipped(), reduction=TokenMean(),
        penalty=Penalty('forward_kl', 0.37, toward='anchor'))
    got = expected_gradient(toy, spec, new, old, advantages=zero)
    want = exact_gradient(toy, new, rewards=zero, measure='forward_kl',
                          beta=0.37, target_logits=old)
    # The token mean divides by the three tokens of a sequence.
    np.testing.assert_allclose(-3 * got, want, atol=1e-12)

  def test_batches_of_two_have_the_gradient_of_single_sequences(self):
    toy = enumerate_sequences(2, 2, stop=0)
    new, old = _tables(toy, 2)
    rewards = np.array([1.0, 0.0, 3.0])
    spec = LossSpec(bounds=bounds.Fixed(0.1, 0.1))
    one, two = (measure(toy, spec, new, old, rewards=rewards, batch_size=size)
                for size in (1, 2))
    np.testing.assert_allclose(one.expected, two.expected, atol=1e-14)
    np.testing.assert_allclose(one.variance, two.variance, rtol=1e-12)


class ReportTest(parameterized.TestCase):

  def test_on_policy_a_rule_with_an_unbiased_penalty_is_unbiased(self):
    toy = enumerate_sequences(3, 2)
    logits, reference = _tables(toy, 2)
    rewards = np.arange(9) % 2
    biased = {}
    for name in ('rpg_fkl', 'kl_cov', 'tr_ppo', 'grpo', 'pspo'):
      got = measure(toy, algorithms.get(name), logits, logits, rewards=rewards,
                    reference_logits=reference)
      if got.relative_bias > 1e-12:
        biased[name] = got.relative_bias
    # GRPO's k3 has the other direction; PSPO has 0.9 of the gradient.
    self.assertEqual(set(biased), {'grpo', 'pspo'})
    self.assertAlmostEqual(biased['pspo'], 0.1)

  def test_variance_of_a_coin(self):
    # Two actions of probability 1/2, A = +-1/2: the gradient of A log p is
    # +-1/2 (1/2, -1/2) for either, so it is (1/4, -1/4) always.
    toy = enumerate_sequences(2, 1)
    zero = np.zeros((1, 2))
    got = measure(toy, UNCLIPPED, zero, zero, rewards=np.array([1.0, 0.0]))
    np.testing.assert_allclose(got.expected, [[0.25, -0.25]], atol=1e-15)
    self.assertAlmostEqual(got.variance, 0, places=15)
    # Without the baseline it is (1/2, -1/2) or 0: variance 2 / 16.
    got = measure(toy, UNCLIPPED, zero, zero, rewards=np.array([1.0, 0.0]),
                  advantages=np.array([1.0, 0.0]))
    np.testing.assert_allclose(got.bias, 0, atol=1e-15)
    self.assertAlmostEqual(got.variance, 0.125, places=15)

  def test_off_policy_token_ratios_are_a_first_order_surrogate(self):
    toy = enumerate_sequences(3, 3)
    new, old = _tables(toy, 2)
    rewards = np.random.default_rng(1).normal(size=len(toy.tokens))
    bias = lambda policy: measure(
        toy, UNCLIPPED, policy, old, rewards=rewards).relative_bias
    self.assertGreater(bias(new), 0.1)
    # Ten times nearer, ten times less.
    near, nearer = (bias(old + s * (new - old)) for s in (1e-2, 1e-3))
    np.testing.assert_allclose(near / nearer, 10, rtol=0.1)

  def test_clipping_trades_variance_for_bias(self):
    toy = enumerate_sequences(8, 1)
    new, old = _tables(toy, 2, scale=0.8)
    rewards = np.arange(8) % 2
    free, clipped = (measure(toy, spec, new, old, rewards=rewards) for spec in (
        UNCLIPPED, LossSpec(reduction=TokenMean())))
    self.assertLess(free.relative_bias, 1e-14)
    self.assertGreater(clipped.relative_bias, 1e-2)
    self.assertLess(clipped.variance, free.variance)

  def test_a_mean_by_length_is_biased_where_lengths_differ(self):
    toy = enumerate_sequences(3, 3, stop=0)
    (logits,) = _tables(toy, 1)
    rewards = np.random.default_rng(1).normal(size=len(toy.tokens))
    grpo, dr_grpo = (measure(
        toy, algorithms.get(name, **more), logits, logits, rewards=rewards)
        for name, more in (('grpo', {'beta': 0}), ('dr_grpo', {})))
    self.assertGreater(grpo.relative_bias, 0.05)
    self.assertLess(dr_grpo.relative_bias, 1e-12)

  def test_means_by_context(self):
    toy = enumerate_sequences(2, 1, num_contexts=2)
    logits = np.log([[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(
        report.context_means(toy, logits, np.array([4.0, 0, 1, 3])),
        [1, 1, 2, 2], rtol=1e-12)
    self.assertAlmostEqual(
        report.token_scale(toy, LossSpec(reduction=SequenceSum(7.0)), logits),
        7.0)


if __name__ == '__main__':
  absltest.main()
