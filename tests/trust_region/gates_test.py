"""Who is blocked, and which gradient is left, by numbers of one gate each."""
import math

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.oracle import certificates
from rlclip.trust_region import bounds, gates

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
    scale = _make(name).scale
    np.testing.assert_allclose(
        grad, [-1.5 * scale, 0.5 * scale, 0], rtol=1e-6)
    self.assertFalse(out.blocked_low.any() or out.blocked_high.any())

  @parameterized.parameters(*gates.REGISTRY)
  def test_blocked_means_that_the_gradient_was_changed(self, name):
    rng = np.random.default_rng(0)
    d = rng.normal(0, 0.5, 2000)
    # Close to 1 a soft gate's change is smaller than float32 shows.
    d = d[np.abs(d) > 0.05]
    advantages = rng.normal(0, 1, d.size) * (rng.random(d.size) > 0.1)
    out, grad = _run(_make(name), d, advantages)
    plain = -_make(name).scale * np.exp(d) * advantages
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
                 lambda: gates.SoftSigmoid(0.0), lambda: gates.TwoSided(1.0),
                 lambda: gates.Rollback(0.0), lambda: gates.Quadratic(-1.0),
                 lambda: gates.MaskedWeight(1.0), lambda: gates.Smoothed(1.0),
                 lambda: gates.FlippedWeight(cap_negative=0.5),
                 lambda: gates.GammaWeight(decay_negative=math.inf),
                 lambda: gates.GradientPreserving(beta_low=0.0),
                 lambda: gates.OffPolicyMask(math.inf),
                 lambda: gates.CovarianceClip(cov_share=0.0),
                 lambda: gates.CovarianceClip(cov_low=5.0),
                 lambda: gates.CovariancePenalty(cov_coefficient=0.0)):
      with self.assertRaises(ValueError):
        make()


class TwoSidedTest(parameterized.TestCase):

  @parameterized.parameters(4.0, 1.1)
  def test_is_the_written_formula_above_and_under_the_bound(self, cap):
    d = np.random.default_rng(3).normal(0, 0.7, 5000).astype(np.float32)
    for sign in (1.0, -1.0):
      out, grad = _run(gates.TwoSided(cap), d, np.full(d.shape, sign))

      def written(d):
        w = jnp.exp(d)
        return -jnp.minimum(
            jnp.minimum(w, cap) * sign, jnp.clip(w, 0.8, 1.2) * sign)

      np.testing.assert_allclose(out.loss, written(d), rtol=1e-6)
      want = jax.grad(lambda d: jnp.sum(written(d)))(jnp.asarray(d))
      np.testing.assert_allclose(grad, want, rtol=1e-6)
      np.testing.assert_array_equal(
          out.blocked_low | out.blocked_high, want == 0)

  def test_is_the_dual_clip_only_while_the_cap_is_above_the_bound(self):
    d, a = np.log([1.15, 1.15, 5, 5]), [1, -1, 1, -1]
    for cap, blocked in ((4.0, [0, 0, 1, 1]), (1.1, [1, 0, 1, 1])):
      out, _ = _run(gates.TwoSided(cap), d, a)
      np.testing.assert_array_equal(out.blocked_high, blocked)
    for cap, blocked in ((4.0, [0, 0, 1, 1]), (1.1, [0, 1, 1, 1])):
      out, _ = _run(gates.DualClip(cap), d, a)
      np.testing.assert_array_equal(out.blocked_high, blocked)


class RollbackTest(parameterized.TestCase):

  @parameterized.parameters(0.3, 2.0)
  def test_is_equation_11_with_an_interval(self, alpha):
    w, a = np.array([1.5, 1.5, 0.5, 0.5, 1.1]), np.array([1, -1, -1, 1, 1])
    out, grad = _run(gates.Rollback(alpha), np.log(w), a)
    end = np.clip(w, 0.8, 1.2)
    rolled = np.where(w == end, w, -alpha * w + (1 + alpha) * end)
    np.testing.assert_allclose(
        out.loss, -np.minimum(w * a, rolled * a), rtol=1e-5)
    np.testing.assert_allclose(
        grad, [1.5 * alpha, 1.5, -0.5 * alpha, -0.5, -1.1], rtol=1e-5)

  def test_is_equation_16_with_a_mere_test(self):
    closed = bounds.Region(0.0, 0.0)  # D >= delta at every token
    out, grad = _run(gates.Rollback(0.05), np.log([1.5, 1.5, 0.5]), [1, -1, -1],
                     closed)
    # F = -alpha w, by log p; the loss is 1 at w = 1.
    np.testing.assert_allclose(grad, [0.05 * 1.5, 1.5, -0.05 * 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        out.loss, [-(1.05 - 0.075), 1.5, 1.05 - 0.025], rtol=1e-6)

  def test_gppo_keeps_the_gradient_of_the_bound(self):
    w, a = [1.5, 0.5, 0.5, 5], [1, -1, 1, -1]
    for gate, kept in ((gates.GradientPreserving(), [-1.2, 0.8, -0.5, 5]),
                       (gates.GradientPreserving(0.75, cap=3.0),
                        [-1.2, 0.6, -0.5, 0])):
      out, grad = _run(gate, np.log(w), a)
      np.testing.assert_allclose(grad, kept, rtol=1e-6)
      np.testing.assert_allclose(out.loss[:3], kept[:3], rtol=1e-6)


class WeightTest(parameterized.TestCase):

  def test_aspo_flips_good_tokens_and_still_clips_them(self):
    w, a = [0.5, 0.1, 1.1, 1.3, 0.7, 5], [1, 1, 1, 1, -1, -1]
    _, grad = _run(gates.FlippedWeight(), np.log(w), a)
    np.testing.assert_allclose(grad, [-2, -3, -1 / 1.1, 0, 0, 3], rtol=1e-6)
    _, grad = _run(gates.FlippedWeight(cap_negative=math.inf), np.log(w), a)
    np.testing.assert_allclose(grad[-1], 5, rtol=1e-6)

  def test_dppo_masks_and_caps(self):
    out, grad = _run(gates.MaskedWeight(2.0), np.log([1.5, 1.5, 3]),
                     [1, -1, -1], logps=[-1, -2, -3])
    np.testing.assert_allclose(grad, [0, 1.5, 2], rtol=1e-6)
    np.testing.assert_allclose(out.loss, [0, -3, -6], rtol=1e-6)

  def test_vespo_peaks_at_k_over_lambda(self):
    w = np.array([0.5, 2 / 3, 0.9])
    _, grad = _run(gates.GammaWeight(), np.log(w), np.ones(3))
    self.assertEqual(np.argmax(-grad), 1)
    np.testing.assert_allclose(grad, -w**2 * np.exp(3 * (1 - w)), rtol=1e-6)


class SoftTest(absltest.TestCase):

  def test_parabolas_turn_where_they_say(self):
    _, grad = _run(gates.Quadratic(0.25), np.log([1.25, 1.5, 0.75, 0.5]),
                   [1, 1, -1, -1])
    np.testing.assert_allclose(grad, [0, 1.5, 0, -0.5], atol=1e-6)
    # p - mu = mu (w - 1) = 0.1 at mu = 0.2, w = 1.5.
    x = gates.GateInputs(
        jnp.log(jnp.full((1, 1), 1.5)), jnp.log(jnp.full((1, 1), 0.3)),
        jnp.ones((1, 1)), 0.0, None, jnp.ones((1, 1), bool),
        jnp.log(jnp.full((1, 1), 0.2)))
    for shift, want in ((0.1, 0.0), (0.2, -0.75)):
      grad = jax.grad(lambda d: jnp.sum(gates.ShiftQuadratic(shift)(
          x._replace(log_ratio=d)).loss))(x.log_ratio)
      np.testing.assert_allclose(grad, [[want]], atol=1e-6)

  def test_dro_pulls_back_without_an_advantage(self):
    out, grad = _run(gates.SquaredLog(0.5), [0.4, -0.4], [0, 0])
    np.testing.assert_allclose(grad, [0.2, -0.2], rtol=1e-6)
    np.testing.assert_array_equal(out.blocked_low, [0, 1])
    np.testing.assert_array_equal(out.blocked_high, [1, 0])


class BatchTest(absltest.TestCase):

  def test_opsm_drops_bad_rows_that_became_unlikely(self):
    d = jnp.float32([[-0.9, -0.2, 0], [-0.9, 0.1, 0], [-0.9, -0.2, 0]])
    mask = jnp.array([[True, True, False]] * 3)
    x = gates.GateInputs(
        d, d, jnp.float32([[-1], [-1], [1]]), 0.0, REGION, mask)
    out = gates.OffPolicyMask()(x)
    # Means -0.55, -0.4, -0.55; PPO blocks the first token where A < 0.
    np.testing.assert_array_equal(
        out.blocked_low & mask, [[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(out.loss[0], np.zeros(3))

  def test_clip_cov_picks_by_the_token_and_not_its_place(self):
    rng = np.random.default_rng(5)
    logps = rng.normal(-2, 2, (100, 50)).astype(np.float32)
    a, order = rng.normal(0, 1, (100, 1)), rng.permutation(100)
    gate = gates.CovarianceClip(cov_share=0.002)

    def picked(rows):
      zero = jnp.zeros(logps.shape)
      out = gate(gates.GateInputs(
          zero, jnp.asarray(logps[rows]), jnp.float32(a[rows]), 0.0, REGION,
          jnp.ones(logps.shape, bool)))
      blocked = np.asarray(out.blocked_low | out.blocked_high)
      np.testing.assert_array_equal(out.blocked_high, blocked & (a[rows] > 0))
      return blocked

    first = picked(np.arange(100))
    self.assertEqual(first.sum(), 10)  # 0.002 of 5,000
    np.testing.assert_array_equal(picked(order), first[order])

  def test_kl_cov_pulls_the_highest_covariance(self):
    logps = jnp.float32([[-1, -5], [-1, -5]])
    d = jnp.float32([[0.5, -0.5], [0.5, -0.5]])
    x = gates.GateInputs(
        d, logps, jnp.float32([[1], [-2]]), 0.0, None, jnp.ones((2, 2), bool))
    # cov = (A + 0.5) (log p + 3): 3, -3, -3, 3; the first of equals.
    gate = gates.CovariancePenalty(cov_share=0.25, cov_coefficient=0.7)
    grad = jax.grad(lambda d: jnp.sum(gate(x._replace(log_ratio=d)).loss))(d)
    plain = -np.exp(d) * [[1], [-2]]
    np.testing.assert_allclose(
        grad, plain + [[0.7, 0], [0, 0]], rtol=1e-6)


if __name__ == '__main__':
  absltest.main()
