"""Contract of every published rule, and the published numbers."""
import dataclasses
import functools
import inspect

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip import algorithms, losses
from rlclip.losses import mismatch, reduce
from rlclip.losses.penalty import Penalty
from rlclip.losses.spec import LossSpec
from rlclip.oracle import certificates
from rlclip.trust_region import bounds, gates

NUM_ROWS, WIDTH = 8, 6
LENGTHS = np.array([6, 1, 4, 0, 3, 5, 2, 6])
MASK = np.arange(WIDTH) < LENGTHS[:, None]
REWARDS = np.float32([1, 0, 0, 1, 1, 1, 0, 1])
GROUP = np.repeat([0, 1], 4)
ADVANTAGES = REWARDS - np.repeat([0.5, 0.75], 4).astype(np.float32)


def _logps(scale, seed=3):
  rng = np.random.default_rng(seed)
  behavior = rng.normal(-1, 0.5, MASK.shape).astype(np.float32)
  move, reference = rng.normal(0, scale, (2, *MASK.shape))
  return (behavior + move).astype(np.float32), behavior, (
      behavior + reference).astype(np.float32)


def _arrays(logps, behavior, reference, rows=slice(None)):
  return dict(
      logps=logps[rows], behavior_logps=behavior[rows],
      reference_logps=reference[rows], old_logps=behavior[rows],
      advantages=ADVANTAGES[rows], mask=MASK[rows], rewards=REWARDS[rows],
      group=GROUP[rows])


def _run(spec, arrays):
  """Output, and the gradient of the loss's total. Eagerly: nothing compiles."""
  logps = arrays.pop('logps')

  def total(logps):
    out = losses.from_arrays(spec, logps=logps, **arrays)
    return out.loss.total, out

  (_, out), grad = jax.value_and_grad(total, has_aux=True)(jnp.asarray(logps))
  return out, np.asarray(grad.astype(jnp.float32))


@functools.lru_cache(maxsize=None)
def _plain(name):
  """What several tests compare with."""
  return _run(algorithms.get(name), _arrays(*_logps(0.3)))


class ContractTest(parameterized.TestCase):

  @parameterized.parameters(*algorithms.names())
  def test_masked_tokens_change_neither_value_nor_gradient(self, name):
    spec, arrays = algorithms.get(name), _arrays(*_logps(0.3))
    poison = np.where(np.arange(WIDTH) % 2, np.inf, np.nan)
    bad = {k: np.where(MASK, v, poison if k != 'logps' else -poison).astype(
        np.float32) if np.shape(v) == MASK.shape and k != 'mask' else v
        for k, v in arrays.items()}
    bad['advantages'] = np.where(LENGTHS, ADVANTAGES, np.nan)
    out, grad = _plain(name)
    bad_out, bad_grad = _run(spec, bad)
    np.testing.assert_array_equal(out.loss, bad_out.loss)
    np.testing.assert_array_equal(grad, bad_grad)
    np.testing.assert_array_equal(grad[~MASK], 0)
    self.assertTrue(np.abs(grad[MASK]).max() > 0)
    self.assertEqual(out.metrics.keys(), bad_out.metrics.keys())

  @parameterized.parameters(*algorithms.names())
  def test_whole_groups_add_up_to_the_batch(self, name):
    spec, data = algorithms.get(name), _logps(0.3)
    whole, grad = _plain(name)
    parts = [_run(spec, _arrays(*data, rows=rows))
             for rows in (slice(0, 4), slice(4, 8))]
    total = jax.tree.map(lambda *x: sum(x), *(out for out, _ in parts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
        a, b, rtol=2e-5, atol=1e-6), total, whole)
    np.testing.assert_allclose(
        np.concatenate([g for _, g in parts]), grad, rtol=1e-5, atol=1e-7)

  @parameterized.parameters(*algorithms.names())
  def test_at_ratio_one_it_is_reinforce_without_a_clipped_token(self, name):
    spec = algorithms.get(name)
    spec = dataclasses.replace(spec, penalty=None)
    _, behavior, reference = _logps(0.3)
    out, grad = _run(spec, _arrays(behavior, behavior, reference))
    weights = spec.reduction(jnp.asarray(MASK)).tokens
    if spec.level == 'sequence' or name == 'gmpo':
      # The sequence's ratio spreads each token's weight over all of them.
      weights = np.asarray(weights.sum(-1, keepdims=True)) * MASK / np.maximum(
          LENGTHS, 1)[:, None]
    np.testing.assert_allclose(
        grad, -ADVANTAGES[:, None] * weights, rtol=1e-5, atol=1e-7)
    for side in ('low', 'high', 'region'):
      self.assertEqual(float(out.metrics[f'clip_ratio/{side}_mean'].total), 0)

  @parameterized.parameters(*algorithms.names())
  def test_bf16_in_float32_out(self, name):
    data = [jnp.asarray(x, jnp.bfloat16) for x in _logps(0.3)]
    out, _ = _run(algorithms.get(name), _arrays(*data))
    self.assertEqual(out.loss.total.dtype, jnp.float32)
    # Rounded inputs, exact arithmetic: as from the same numbers in float32.
    same, _ = _run(algorithms.get(name), _arrays(
        *(np.asarray(x, np.float32) for x in data)))
    np.testing.assert_allclose(out.loss, same.loss, rtol=1e-5)

  @parameterized.parameters(*algorithms.names())
  def test_far_away_everything_is_finite(self, name):
    _, behavior, reference = _logps(0.3)
    far = np.where(np.arange(WIDTH) % 2, 20, -20).astype(np.float32)
    out, grad = _run(
        algorithms.get(name), _arrays(behavior + far, behavior, reference))
    self.assertTrue(np.isfinite(grad).all())
    self.assertTrue(all(np.isfinite(x) for x in jax.tree.leaves(out)))

  @parameterized.parameters(*algorithms.names())
  def test_a_fully_masked_batch_is_zero_and_says_so(self, name):
    arrays = _arrays(*_logps(0.3))
    arrays['mask'] = np.zeros_like(MASK)
    out, grad = _run(algorithms.get(name), arrays)
    self.assertEqual((float(out.loss.total), float(out.loss.weight)), (0, 0))
    np.testing.assert_array_equal(grad, 0)
    self.assertEqual(float(out.metrics['ratio/mean'].weight), 0)

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
