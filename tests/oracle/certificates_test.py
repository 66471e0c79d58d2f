"""Every certificate holds, what should not hold does not, and who is covered.
"""
import dataclasses
import fnmatch

from absl.testing import absltest, parameterized
import numpy as np

from rlclip import algorithms, divergences
from rlclip.losses import Penalty, SequenceSum
from rlclip.oracle import (certificates, enumerate_sequences, exact_gradient,
                           examples, expected_gradient, measure)
from rlclip.oracle.certificates import bandit, rpg
from rlclip.trust_region import gates


class CertificateTest(parameterized.TestCase):

  @parameterized.parameters(*certificates.names())
  def test_holds(self, name):
    if not certificates.is_available(name):
      self.skipTest(f'{name} needs a package that is not installed.')
    failed = {subject: error
              for subject, error in certificates.check_each(name).items()
              if not error <= certificates.TOLERANCE}
    self.assertEqual(failed, {})
    self.assertTrue(certificates.documentation(name))

  def test_a_single_subject_is_checked_alone(self):
    name, key = 'divergence_mask_is_interval', 'divergence:forward_kl'
    self.assertEqual(tuple(certificates.check_each(name, 0, (key,))), (key,))
    self.assertEqual(certificates.check(name, 0, key), 0)
    with self.assertRaisesRegex(ValueError, 'not checked for gate:none'):
      certificates.check(name, 0, 'gate:none')
    with self.assertRaisesRegex(ValueError, 'Unknown certificate'):
      certificates.check('everything')


class CoverTest(parameterized.TestCase):

  def test_everything_named_is_covered(self):
    for kind in examples.kinds():
      for key in examples.keys(kind):
        self.assertTrue(certificates.covering(kind, key.split(':')[1]), key)

  def test_every_certificate_speaks_of_something(self):
    keys = examples.keys()
    for name in certificates.names():
      entry = certificates.REGISTRY[name]
      spoken = set(entry.subjects() if entry.subjects else ()) | {
          key for key in keys
          if any(fnmatch.fnmatchcase(key, p) for p in entry.covers)}
      self.assertTrue(spoken and spoken <= set(keys), name)

  def test_names_aliases_and_numbers(self):
    self.assertIn('kl3_interval_is_its_ratio_clip',
                  certificates.covering('divergence', 'kl3'))
    self.assertIn('kl3_interval_is_its_ratio_clip',
                  certificates.covering('algorithm', 'atr_grpo'))
    self.assertIn('divergence_mask_is_interval',
                  certificates.covering('divergence', 'alpha(order=3)'))
    self.assertNotIn('rpg_score_is_exact',
                     certificates.covering('algorithm', 'rpg_urkl'))
    for kind, name in (('rule', 'grpo'), ('gate', 'grpo')):
      with self.assertRaises(ValueError):
        certificates.covering(kind, name)


class NegativeTest(parameterized.TestCase):
  """What MATHS says is wrong is, by about as much."""

  @parameterized.parameters(*(v for v in rpg.VARIANTS if v[2]))
  def test_normalized_kls_do_not_hold_for_an_unnormalized_sampler(
      self, _, name, control_variate):
    # Published without the factor Z: everything, or the reward, is 1 / Z.
    b = bandit.make(0)
    spec = bandit.unclipped(Penalty(
        name, rpg.BETA, toward='anchor', control_variate=control_variate))
    got = expected_gradient(
        b.toy, spec, b.new, b.old, advantages=b.rewards, mass=1.7)
    exact = exact_gradient(b.toy, b.new, rewards=b.rewards, measure=name,
                           beta=rpg.BETA, target_logits=b.old)
    error = np.abs(got + exact).max() / np.abs(exact).max()
    self.assertBetween(error, 0.25, 0.75)

  @parameterized.parameters(0, 1, 2)
  def test_without_weight_k3_is_farther_off_than_its_gradient_is_long(
      self, seed):
    b = bandit.make(seed)
    exact, other = (-exact_gradient(
        b.toy, b.new, rewards=0 * b.rewards, beta=1.0, measure=name,
        target_logits=b.reference) for name in ('reverse_kl', 'forward_kl'))
    got = bandit.penalty_gradient(b, 'unweighted_k3')
    size = np.abs(exact).max()
    self.assertGreater(np.abs(got - exact).max() / size, 1.5)
    # With the weight held fixed: .21 to .31 of .30 to .47 in MATHS.
    self.assertBetween(np.abs(other - exact).max() / size, 0.3, 1.0)

  @parameterized.parameters('forward_kl', 'reverse_kl')
  def test_token_weights_are_not_the_gradient_of_sequences(self, name):
    # MATHS: .102 and .0945 of .31 for the whole, .028 of .10 for the penalty.
    toy = enumerate_sequences(3, 3)
    rng = np.random.default_rng(0)
    new, old = rng.normal(0, 0.7, (2, toy.num_rows, 3))
    rewards = rng.normal(size=len(toy.tokens))
    spec = dataclasses.replace(
        bandit.unclipped(Penalty(name, rpg.BETA, toward='anchor')),
        reduction=SequenceSum(1.0))
    self.assertBetween(measure(
        toy, spec, new, old, rewards=rewards).relative_bias, 0.1, 0.9)
    alone = measure(toy, spec, new, old, rewards=0 * rewards).relative_bias
    if name == 'forward_kl':
      self.assertLess(alone, 1e-14)
    else:
      self.assertBetween(alone, 0.1, 0.9)


class ExampleTest(absltest.TestCase):

  def test_an_example_has_the_value_it_shows(self):
    self.assertEqual(examples.spec('algorithm:gapo'), algorithms.get('gapo'))
    self.assertIsInstance(examples.spec('gate:dual_clip').gate, gates.DualClip)
    self.assertEqual(
        examples.spec('divergence:neyman').bounds.divergence, 'neyman')
    self.assertLen(examples.keys('divergence'), len(divergences.names()))


if __name__ == '__main__':
  absltest.main()
