"""Who is blocked, which gradient is left, and levels."""
import math

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.oracle import certificates
from rlclip.trust_region import bounds, gates, levels

REGION = bounds.Fixed(0.2, 0.2)(None)


def _make(name):
  return gates.REGISTRY[name]()


def _run(gate, log_ratio, advantages, region=REGION, inside=0.0, logps=None):
  """Output and gradient by log-ratio, one row a sample."""
  column = lambda x: jnp.asarray(x, jnp.float32).reshape(-1, 1)
  d = column(log_ratio)

  def total(d):
    p = d if logps is None else d - jax.lax.stop_gradient(d) + column(logps)
    out = gate(gates.GateInputs(
        d, p, column(advantages), inside, region, jnp.ones(d.shape, bool)))
    return jnp.sum(out.loss), out

  (_, out), grad = jax.value_and_grad(total, has_aux=True)(d)
  flat = lambda x: np.asarray(x)[:, 0]
  return gates.GateOutput(*map(flat, out)), flat(grad)


class ContractTest(parameterized.TestCase):

  @parameterized.parameters(*gates.REGISTRY)
  def test_at_ratio_one_it_is_reinforce_and_blocks_nothing(self, name):
    out, grad = _run(_make(name), [0, 0, 0], [1.5, -0.5, 0])
    np.testing.assert_allclose(grad, [-1.5, 0.5, 0], rtol=1e-6)
    self.assertFalse(out.blocked_low.any() or out.blocked_high.any())

  @parameterized.parameters(*gates.REGISTRY)
  def test_blocked_means_that_the_gradient_was_changed(self, name):
    rng = np.random.default_rng(0)
    d = rng.normal(0, 0.5, 2000)
    # Close to 1 a soft gate's change is smaller than float32 shows.
    d = d[np.abs(d) > 0.05]
    advantages = rng.normal(0, 1, d.size) * (rng.random(d.size) > 0.1)
    out, grad = _run(_make(name), d, advantages)
    plain = -np.exp(d) * advantages
    changed = ~np.isclose(grad, plain, rtol=1e-4, atol=1e-7)
    if name == 'geometric_mean':
      # Its tokens share a ratio, so only the removed ones can be compared.
      changed = (grad == 0) & (advantages != 0)
    np.testing.assert_array_equal(out.blocked_low | out.blocked_high, changed)
    self.assertFalse((out.blocked_low & (d >= 0)).any())
    self.assertFalse((out.blocked_high & (d <= 0)).any())

  @parameterized.parameters(*gates.REGISTRY)
  def test_float32_is_finite_far_away(self, name):
    out, grad = _run(_make(name), [20, 20, -20, -20], [1, -1, 1, -1])
    self.assertTrue(np.isfinite(out.loss).all() and np.isfinite(grad).all())

  @parameterized.parameters(*gates.REGISTRY)
  def test_is_documented_with_its_source(self, name):
    self.assertIn('Source:', gates.REGISTRY[name].__doc__)


class PessimisticMinTest(parameterized.TestCase):

  def test_who_is_clipped_at_a_width_of_two_tenths(self):
    advantages, ratios = [1, -1, -1, 1, 0], [1.5, 1.5, 0.5, 0.5, 1.5]
    out, grad = _run(gates.PessimisticMin(), np.log(ratios), advantages)
    np.testing.assert_array_equal(
        out.blocked_low | out.blocked_high, [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(out.blocked_high, [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(out.blocked_low, [0, 0, 1, 0, 0])
    np.testing.assert_allclose(grad, [0, 1.5, 0, -0.5, 0], rtol=1e-6)
    # The value is that of the bound: -1.2 and 0.8.
    np.testing.assert_allclose(out.loss, [-1.2, 1.5, 0.8, -0.5, 0], rtol=1e-6)

  def test_dual_clip_caps_where_the_advantage_is_negative(self):
    gate = gates.DualClip(3.0)
    out, grad = _run(gate, np.log([2.9, 3.1, 3.1]), [-1, -1, 1])
    np.testing.assert_allclose(grad, [2.9, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(out.loss, [2.9, 3.0, -1.2], rtol=1e-6)
    np.testing.assert_array_equal(out.blocked_high, [0, 1, 1])

  def test_unconditional_freezes_the_way_back_too(self):
    out, grad = _run(
        gates.Unconditional(), np.log([1.5, 1.5, .5, .5]), [1, -1, -1, 1])
    np.testing.assert_array_equal(grad, np.zeros(4))
    np.testing.assert_array_equal(
        out.blocked_low | out.blocked_high, np.ones(4))

  def test_clipped_weight_keeps_every_gradient(self):
    _, grad = _run(gates.ClippedWeight(), np.log([1.5, 1.5, .5]), [1, -1, 1])
    np.testing.assert_allclose(grad, [-1.2, 1.2, -0.8], rtol=1e-6)

  def test_soft_sigmoid_is_four_s_one_minus_s(self):
    _, grad = _run(gates.SoftSigmoid(), [math.log(2.0)], [1.0])
    s = 1 / (1 + math.exp(-1.0))
    np.testing.assert_allclose(grad, [-4 * s * (1 - s) * 2], rtol=1e-6)

  @parameterized.parameters('surrogate', 'score')
  def test_float32_equals_the_mask_and_weight_form(self, form):
    rng = np.random.default_rng(1)
    d = rng.normal(0, 0.4, 200_000).astype(np.float32)
    advantages = rng.normal(0, 1, d.size).astype(np.float32)
    region = bounds.FromDivergence('forward_kl', 0.02)
    _, grad = _run(
        gates.DualClip(2.0, form), d, advantages, region(None), logps=d - 1)
    low, high = region.interval()
    w, a = np.exp(d.astype(np.float64)), advantages.astype(np.float64)
    blocked = ((a > 0) & (w > high)) | ((a < 0) & ((w < low) | (w > 2)))
    np.testing.assert_array_equal(grad[blocked], 0)
    np.testing.assert_allclose(grad[~blocked], (-w * a)[~blocked], rtol=1e-5)

  def test_score_form_reports_the_values_of_algorithm_2(self):
    rng = np.random.default_rng(2)
    d = rng.normal(0, 1, 1000).astype(np.float32)
    logps = -rng.random(1000).astype(np.float32)
    advantages = rng.normal(0, 1, 1000).astype(np.float32)
    # Unnormalized reverse KL: A' = A - beta log w, C_KL = -beta w log w.
    out, _ = _run(
        gates.DualClip(3.0, 'score'), d, advantages,
        bounds.Fixed(0.2, 0.28)(None), inside=-0.3 * d[:, None], logps=logps)
    want = certificates.algorithm_2(
        jnp.asarray(d), jnp.asarray(logps), advantages, -0.3 * np.exp(d) * d)
    np.testing.assert_allclose(out.loss, want, rtol=1e-4, atol=1e-5)

  def test_options_are_checked(self):
    for make in (lambda: gates.DualClip(1.0), lambda: gates.DualClip(math.inf),
                 lambda: gates.PessimisticMin('scores'),
                 lambda: gates.SoftSigmoid(0.0)):
      with self.assertRaises(ValueError):
        make()


class LevelTest(absltest.TestCase):

  def test_a_sequence_shares_the_mean_of_its_tokens(self):
    mask = jnp.array([[True, True, False], [False, False, False]])
    got = levels.get('sequence')(jnp.float32([[0.1, 0.3, 0], [0, 0, 0]]), mask)
    np.testing.assert_allclose(got, [[0.2, 0.2, 0], [0, 0, 0]], rtol=1e-6)

  def test_gmpo_averages_the_clipped_tokens(self):
    region = bounds.FromDivergence('absolute_log_ratio', 0.4)(None)
    d = jnp.float32([[0.6, 0.2]])

    def loss(d):
      return jnp.mean(gates.GeometricMean()(gates.GateInputs(
          d, d, jnp.ones((1, 1)), 0.0, region, jnp.ones((1, 2), bool))).loss)

    # exp((0.4 + 0.2) / 2); only the second token has a gradient.
    ratio = math.exp(0.3)
    np.testing.assert_allclose(loss(d), -ratio, rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(loss)(d), [[0, -ratio / 2]], rtol=1e-6)


if __name__ == '__main__':
  absltest.main()
