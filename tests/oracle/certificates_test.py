"""Every certificate holds, and what should not hold does not."""
from absl.testing import absltest, parameterized
import numpy as np

from rlclip.losses import LossSpec, Penalty, TokenMean
from rlclip.oracle import (certificates, enumerate_sequences, exact_gradient,
                           expected_gradient)
from rlclip.trust_region import gates


class CertificateTest(parameterized.TestCase):

  @parameterized.parameters(*certificates.names())
  def test_holds(self, name):
    for seed in (0, 1):
      self.assertLessEqual(
          certificates.check(name, seed), certificates.TOLERANCE)
    self.assertTrue(certificates.documentation(name))

  def test_the_token_wise_reverse_kl_is_not_that_of_sequences(self):
    self.assertGreater(certificates.token_penalty_error('reverse_kl', 0), 1e-3)


class EnumerationTest(absltest.TestCase):

  def test_probabilities_sum_to_one(self):
    for toy in (enumerate_sequences(3, 3), enumerate_sequences(3, 3, stop=0),
                enumerate_sequences(4, 1, num_contexts=3)):
      logits = np.random.default_rng(0).normal(
          size=(toy.num_rows, toy.num_tokens))
      np.testing.assert_allclose(
          np.sum(toy.probabilities(logits)), 1, rtol=1e-6)

  def test_a_stop_token_ends_a_sequence_and_belongs_to_it(self):
    # 0, 10, 11 with stop 0; prefixes (), (1).
    toy = enumerate_sequences(2, 2, stop=0)
    self.assertEqual(toy.tokens[toy.mask].tolist(), [0, 1, 0, 1, 1])
    self.assertEqual(toy.mask.sum(-1).tolist(), [1, 2, 2])
    self.assertEqual(toy.num_rows, 2)

  def test_too_many_sequences_are_refused(self):
    with self.assertRaisesRegex(ValueError, '100,000'):
      enumerate_sequences(10, 6)


class SequenceTest(absltest.TestCase):

  def test_on_policy_token_losses_have_the_gradient_of_the_reward(self):
    toy = enumerate_sequences(3, 3)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(toy.num_rows, 3))
    rewards = rng.normal(size=len(toy.tokens))
    spec = LossSpec(
        bounds=None, gate=gates.Unclipped(), reduction=TokenMean())
    got = expected_gradient(toy, spec, logits, logits, advantages=rewards)
    # The token mean divides by the three tokens of a sequence.
    np.testing.assert_allclose(
        -3 * got, exact_gradient(toy, logits, rewards=rewards), atol=1e-12)

  def test_off_policy_token_losses_are_a_first_order_surrogate(self):
    toy = enumerate_sequences(3, 3)
    rng = np.random.default_rng(0)
    new, old = rng.normal(size=(2, toy.num_rows, 3))
    rewards = rng.normal(size=len(toy.tokens))
    spec = LossSpec(
        bounds=None, gate=gates.Unclipped(), reduction=TokenMean())
    got = expected_gradient(toy, spec, new, old, advantages=rewards)
    error = np.abs(-3 * got - exact_gradient(toy, new, rewards=rewards)).max()
    self.assertGreater(error, 1e-3)

  def test_token_penalty_toward_the_sampler_is_exact_in_the_whole_loss(self):
    toy = enumerate_sequences(3, 3)
    new, old = np.random.default_rng(1).normal(size=(2, toy.num_rows, 3))
    zero = np.zeros(len(toy.tokens))
    spec = LossSpec(
        bounds=None, gate=gates.Unclipped(), reduction=TokenMean(),
        penalty=Penalty('forward_kl', 0.37, toward='anchor'))
    got = expected_gradient(toy, spec, new, old, advantages=zero)
    want = exact_gradient(toy, new, rewards=zero, measure='forward_kl',
                          beta=0.37, target_logits=old)
    np.testing.assert_allclose(-3 * got, want, atol=1e-12)


if __name__ == '__main__':
  absltest.main()
