"""The published numbers, and how they are replaced."""
import dataclasses
import inspect

from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from rlclip import algorithms, losses
from rlclip.losses import mismatch, reduce
from rlclip.losses.penalty import Penalty
from rlclip.losses.spec import LossSpec
from rlclip.oracle import certificates
from rlclip.trust_region import bounds, gates


class DocumentationTest(parameterized.TestCase):

  @parameterized.parameters(*algorithms.names())
  def test_is_documented_with_source_and_trust(self, name):
    self.assertIn('Source:', algorithms.documentation(name))
    self.assertIn(algorithms.trust(name), algorithms.TRUST.values())


class PublishedTest(parameterized.TestCase):

  @parameterized.parameters(
      ('grpo', .8, 1.2), ('dr_grpo', .8, 1.2), ('dapo', .8, 1.28),
      ('gspo', 1 - 3e-4, 1 + 4e-4), ('gapo', 1 - 3e-3, 1 + 5e-3),
      ('gapo_token', .8, 1.28), ('atr_grpo', .81310512, 1.21354971),
      ('cispo', 0.0, 1.2), ('abc_grpo', .8, 1.2), ('rpg_ufkl', .8, 1.28),
      ('gmpo', np.exp(-.4), np.exp(.4)))
  def test_interval(self, name, low, high):
    np.testing.assert_allclose(
        algorithms.get(name).bounds.interval(), (low, high), atol=5e-9)

  def test_dr_grpo_divides_neither_by_length_nor_by_std(self):
    spec = algorithms.get('dr_grpo')
    self.assertEqual(spec.advantage, 'group_mean')
    self.assertEqual(spec.reduction, reduce.SequenceSum())
    self.assertFalse(spec.needs_reference)

  def test_gspo_is_a_mean_of_sequences_and_its_ratio(self):
    spec = algorithms.get('gspo')
    self.assertEqual(spec.level, 'sequence')
    self.assertEqual(spec.reduction, reduce.SequenceMean())

  def test_cispo_has_no_lower_bound_and_drops_no_token(self):
    spec = algorithms.get('cispo')
    self.assertEqual(spec.gate, gates.ClippedWeight())
    self.assertEqual(spec.bounds(None).log_low, -np.inf)

  def test_rpg_reinforce_is_algorithm_2(self):
    rng = np.random.default_rng(0)
    d = rng.normal(0, 1, (1, 500)).astype(np.float32)
    logps = -rng.random(d.shape).astype(np.float32)
    for sign in (1.0, -1.0):
      for name, c_kl in (
          ('fkl', lambda w: np.ones_like(w)), ('ufkl', lambda w: -(w - 1)),
          ('rkl', lambda w: -w * (np.log(w) + 1)),
          ('urkl', lambda w: -w * np.log(w))):
        spec = algorithms.get(f'rpg_reinforce_{name}', beta=0.37)
        out = losses.from_arrays(
            spec, logps=logps, behavior_logps=logps - d,
            mask=np.ones(d.shape, bool), advantages=np.float32([sign]))
        want = certificates.algorithm_2(
            jnp.asarray(d), jnp.asarray(logps), sign, 0.37 * c_kl(np.exp(d)),
            cap=10.0)
        np.testing.assert_allclose(
            out.loss.value(), jnp.mean(want), rtol=1e-5)

  @parameterized.parameters('rpg_fkl', 'rpg_ufkl', 'rpg_rkl', 'rpg_urkl')
  def test_rpg_needs_no_reference_model(self, name):
    for form in (name, name.replace('rpg', 'rpg_reinforce')):
      spec = algorithms.get(form)
      self.assertFalse(spec.needs_reference)
      self.assertEqual((spec.penalty.beta, spec.gate.cap), (1e-4, 10.0))


class OverrideTest(parameterized.TestCase):

  def test_a_number_reaches_its_axis(self):
    self.assertEqual(algorithms.get('atr_grpo', delta=.03).bounds.delta, .03)
    spec = algorithms.get('dapo', eps_high=.3, anchor='old')
    self.assertEqual(spec.bounds, bounds.Fixed(.2, .3))
    self.assertEqual(spec.anchor, 'old')
    self.assertEqual(algorithms.get('grpo', beta=.1).penalty.beta, .1)

  def test_beta_of_zero_removes_the_penalty(self):
    spec = algorithms.get('grpo', beta=0)
    self.assertIsNone(spec.penalty)
    self.assertFalse(spec.needs_reference)

  def test_an_axis_is_replaced_first_and_its_numbers_after(self):
    spec = algorithms.get(
        'grpo', bounds='from_divergence', divergence='pearson', delta=.03,
        gate='dual_clip', cap=5.0)
    self.assertEqual(spec.bounds, bounds.FromDivergence('pearson', .03))
    self.assertEqual(spec.gate, gates.DualClip(5.0))

  @parameterized.parameters(
      ('gspo', dict(delta=.1), 'does not take delta; it takes'),
      ('dapo', dict(beta=.1), 'does not take beta'),
      ('grpo', dict(advantage='group_mode'), 'Unknown advantage'),
      ('grpo', dict(gate='none'), 'would have no effect'),
      ('gpro', {}, 'Unknown algorithm'))
  def test_what_does_not_fit_is_refused(self, name, overrides, message):
    with self.assertRaisesRegex(ValueError, message):
      algorithms.get(name, **overrides)

  def test_no_two_axes_share_the_name_of_a_number(self):
    owners = {}
    axes = {'spec': [LossSpec], 'penalty': [Penalty], **{
        axis: [registry[name] for name in registry] for axis, registry in (
            ('bounds', bounds.REGISTRY), ('gate', gates.REGISTRY),
            ('mismatch', mismatch.REGISTRY), ('reduction', reduce.REGISTRY))}}
    for axis, kinds in axes.items():
      for kind in kinds:
        self.assertTrue(inspect.getdoc(kind))
        for field in dataclasses.fields(kind):
          owners.setdefault(field.name, set()).add(axis)
    self.assertEqual({k: v for k, v in owners.items() if len(v) > 1}, {})


if __name__ == '__main__':
  absltest.main()
