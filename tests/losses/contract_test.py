"""What every rule keeps, from the registries: numbers, limits, masks, metrics.

Rules are compiled together, so that a new one costs a fraction of a second.
"""
import dataclasses

from absl.testing import absltest, parameterized
import jax
from jax.extend import core as jax_core
import jax.numpy as jnp
import numpy as np

from rlclip import losses
from rlclip.losses import LossSpec, SequenceSum
from rlclip.oracle import examples
from rlclip.oracle.certificates import programs
from rlclip.trust_region import gates

KEYS = examples.distinct_keys()
SPECS = {key: programs.spec(key) for key in KEYS}
SHAPE = (50_000, 4)
# Log-probs are multiples of this: their differences are exact in float32.
GRAIN = 2.0 ** -16


def _draw(shape, seed=0, single=False, moved=None):
  """Random (w, A, q, c) in rows of different lengths.

  Log-ratios are of all sizes from 3e-4 on. A is 0 in one row of twenty, and
  otherwise no closer to 0 than 0.05, where it would cancel with a penalty.
  """
  rng = np.random.default_rng(seed)
  num = shape[0]
  grain = lambda x: np.round(x / GRAIN) * GRAIN
  q = -rng.exponential(2.0, shape)
  sizes = 10 ** rng.uniform(-3.5, 0, (num, 1))
  d = sizes * rng.normal(0, 0.7, shape) if moved is None else moved
  d = np.where(np.abs(d) < 1e-4, 1e-4, d)
  if moved is None:
    d = np.minimum(d, -q)  # p <= 1
  lengths = rng.integers(0, shape[1] + 1, (num, 1))
  lengths = np.ones_like(lengths) if single else lengths
  rewards = rng.integers(0, 2, num).astype(float)
  size = programs.GROUP_SIZE
  means = rewards.reshape(-1, size).mean(1).repeat(size)
  advantages = rng.choice([-1, 1], num) * rng.uniform(0.05, 3, num)
  old = grain(q + (0 if single else 0.3) * rng.normal(size=shape))
  float32 = lambda x: x.astype(np.float32).astype(np.float64)
  return programs.Batch(
      moving={'logps': grain(q + d), 'entropy': float32(rng.random(shape)),
              'statistics': float32(rng.exponential(0.05, shape))},
      tokens={'behavior_logps': grain(q), 'old_logps': old,
              'reference_logps': grain(q + 0.2 * rng.normal(size=shape)),
              'mask': np.arange(shape[1]) < lengths},
      rows={'advantages': float32(advantages * (rng.random(num) > 0.05)),
            'rewards': rewards, 'group_mean': means})


def _shift(batch, by):
  logps = batch.moving['logps'] + by
  return batch._replace(moving=batch.moving | {'logps': logps})


def _run(batch, specs, dtype=np.float64):
  return dict(zip(specs, programs.run_specs(
      batch, tuple(specs.values()), dtype)))


class PrecisionTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.batch = _draw(SHAPE)
    cls.single = _run(cls.batch, SPECS, np.float32)
    cls.double = _run(cls.batch, SPECS)
    cls.around = [_run(_shift(cls.batch, by), SPECS) for by in (1e-5, -1e-5)]

  @parameterized.parameters(*KEYS)
  def test_float32_is_float64_on_200_000_tokens(self, key):
    gradient = lambda results: results[key].gradients['logps']
    got, want = gradient(self.single), gradient(self.double)
    above, below = map(gradient, self.around)
    # At an end of the region, and where parts of a gradient cancel, it is not
    # determined to five digits by inputs of seven.
    steady = np.abs(above - below) <= 1e-3 * np.abs(want)
    steady &= self.batch.tokens['mask']
    self.assertGreater(steady.sum(), 0.9 * self.batch.tokens['mask'].sum())
    zero = want == 0
    np.testing.assert_array_equal(got[zero & steady], 0)
    np.testing.assert_array_equal(got[~self.batch.tokens['mask']], 0)
    some = steady & ~zero
    self.assertTrue(some.any())
    error = np.abs(got - want)[some] / np.abs(want)[some]
    self.assertLessEqual(error.max(), 1e-5)


class FarTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.far = np.resize([20, -20, 100, -100], (SHAPE[0], 1))
    cls.batch = _draw(SHAPE, single=True, moved=cls.far)
    tokens = cls.batch.tokens | {
        'reference_logps': cls.batch.tokens['behavior_logps']}
    cls.batch = cls.batch._replace(tokens=tokens)
    cls.results = _run(cls.batch, SPECS, np.float32)
    none = {k: 0 * v for k, v in cls.batch.rows.items()}
    cls.penalties = {key: cls._alone(spec.penalty)
                     for key, spec in SPECS.items() if spec.penalty}
    cls.pull = _run(cls.batch._replace(rows=none), cls.penalties, np.float32)

  @staticmethod
  def _alone(penalty):
    return LossSpec(bounds=None, gate=gates.Unclipped(), penalty=penalty,
                    reduction=SequenceSum(1.0))

  @parameterized.parameters(*KEYS)
  def test_value_and_gradient_are_finite(self, key):
    for leaf in jax.tree.leaves(self.results[key]):
      self.assertTrue(np.isfinite(leaf).all())

  def test_every_penalty_still_pushes_back(self):
    back = np.sign(self.far)
    for name, result in self.pull.items():
      penalty = self.penalties[name].penalty
      gradient = result.gradients['logps'][:, :1]
      if penalty.estimator == 'exact':
        # Down with the divergence itself.
        gradient = back * result.gradients['statistics'][:, :1]
      pushes = bool((gradient * back > 0).all())
      # log r as a loss has the same gradient everywhere, and so has the forward
      # KL with RPG's control variate, w f'(w) - w = -1.
      constant = penalty.estimator == 'unweighted_k1' or (
          penalty.measure, penalty.control_variate) == ('forward_kl', -1.0)
      self.assertTrue(pushes or constant, name)


class MaskTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    batch = _draw(SHAPE)
    nothing = {'mask': np.zeros(SHAPE, bool)}
    cls.empty = _run(batch._replace(tokens=batch.tokens | nothing), SPECS,
                     np.float32)

  @parameterized.parameters(*KEYS)
  def test_a_fully_masked_batch_is_zero(self, key):
    got = self.empty[key]
    self.assertEqual((float(got.total), float(got.weight)), (0, 0))
    for gradient in got.gradients.values():
      np.testing.assert_array_equal(gradient, 0)

  @parameterized.parameters((8, 1), (8, 2), (1,), ())
  def test_numbers_of_rows_are_never_broadcast(self, *shape):
    # (8,) is what the rows have everywhere else in this file.
    batch = _draw((8, 2))
    for name in ('advantages', 'rewards', 'group_mean'):
      rows = batch.rows | {name: np.ones(shape)}
      with self.assertRaisesRegex(ValueError, f'{name} must be one a row'):
        programs.evaluate(LossSpec(), batch._replace(rows=rows))

  def test_a_mask_is_not_a_length(self):
    # Losses 1, 5 and 3, of which the second is no sampled token.
    out = losses.from_arrays(
        LossSpec(bounds=None, gate=gates.Unclipped()),
        logps=jnp.log(jnp.array([[1.0, 5.0, 3.0]])),
        behavior_logps=jnp.zeros((1, 3)), advantages=jnp.float32([-1]),
        mask=jnp.array([[True, False, True]]))
    self.assertAlmostEqual(float(out.loss.value()), 2.0, places=6)
    self.assertEqual(float(out.metrics['ratio/mean'].weight), 2.0)


class ClipMetricsTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.batch = _draw(SHAPE, single=True)
    cls.results = _run(cls.batch, SPECS)
    cls.plain = _run(cls.batch, {key: dataclasses.replace(
        spec, gate=gates.Unclipped(), bounds=None, level='token',
        width_dial=None)
        for key, spec in SPECS.items()})
    here = cls.batch.tokens['old_logps']
    cls.at_one = _run(cls.batch._replace(
        moving=cls.batch.moving | {'logps': here, 'statistics': 0 * here}),
        SPECS)

  @parameterized.parameters(*KEYS)
  def test_they_say_whose_gradient_was_changed(self, key):
    got = self.results[key]
    ours = got.gradients['logps']
    plain = self.plain[key].gradients['logps'] * SPECS[key].gate.scale
    changed = np.abs(ours - plain) > 1e-12 * np.abs(plain)
    low, high = got.blocked_low.astype(bool), got.blocked_high.astype(bool)
    np.testing.assert_array_equal(low | high, changed)
    d = self.batch.moving['logps'] - self.batch.tokens['behavior_logps']
    self.assertFalse((low & (d > 0)).any() or (high & (d < 0)).any())
    self.assertFalse((low & high).any())

  @parameterized.parameters(
      *(key for key in KEYS if not SPECS[key].gate.blocks_at_one))
  def test_at_ratio_one_nothing_is_clipped(self, key):
    got = self.at_one[key]
    self.assertFalse(got.blocked_low.any() or got.blocked_high.any())


class TraceTest(parameterized.TestCase):

  @parameterized.parameters(*KEYS)
  def test_traced_once_and_bf16_is_widened_before_anything_else(self, key):
    traces = []

    def run(batch):
      traces.append(1)
      return programs.evaluate(SPECS[key], batch)

    run = jax.jit(run)
    for seed in (0, 1):
      traced = run.trace(_cast(_draw((8, 2), seed), jnp.bfloat16))
    self.assertLen(traces, 1)
    total, weight = traced.jaxpr.out_avals[:2]
    self.assertEqual((total.dtype, weight.dtype), (np.float32, np.float32))
    self.assertLessEqual(set(_bf16_operations(traced.jaxpr.jaxpr)), {
        'convert_element_type', 'broadcast_in_dim', 'reshape'})


def _cast(batch, dtype):
  return jax.tree.map(
      lambda x: jnp.asarray(x, None if x.dtype == bool else dtype), batch)


def _bf16_operations(jaxpr):
  """Names of what reads bf16, in functions that it calls as well."""
  for equation in jaxpr.eqns:
    inner = list(jax_core.jaxprs_in_params(equation.params))
    for each in inner:
      yield from _bf16_operations(each)
    reads = any(getattr(v.aval, 'dtype', None) == jnp.bfloat16
                for v in equation.invars)
    if reads and not inner:
      yield equation.primitive.name


if __name__ == '__main__':
  absltest.main()
