"""Every registered gate against its mask and weight, written out in float64.

A row of FORMS is the gradient -m g A by log p of a gate with its default
numbers, by hand and in numpy, for tokens of several rows with a mask. A gate
without a row is held against itself in float64.
"""
from typing import NamedTuple

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.trust_region import bounds, gates

NUM_ROWS, WIDTH = 50_000, 4
LOW, HIGH = 0.8, 1.28
REGION = bounds.Fixed(0.2, 0.28)(None)


class Tokens(NamedTuple):
  """[N, C] but for the advantages, which are [N, 1]."""
  d: np.ndarray  # log w
  logps: np.ndarray
  anchor: np.ndarray
  a: np.ndarray  # advantages
  mask: np.ndarray

  @property
  def w(self):
    return np.exp(self.d)

  @property
  def gains(self):
    """Outside of the region, and A (w - 1) > 0."""
    return ((self.w < LOW) & (self.a < 0)) | ((self.w > HIGH) & (self.a > 0))

  def row_mean(self, values):
    return np.sum(values * self.mask, -1, keepdims=True) / np.maximum(
        self.mask.sum(-1, keepdims=True), 1)


class Form(NamedTuple):
  slope: np.ndarray  # m g A, minus the gradient by log p
  size: np.ndarray | float = 0.0  # of the terms that cancel in it
  plain: np.ndarray | None = None  # what no gate would give; None: w A
  moved: np.ndarray | None = None  # the log-ratio that decides; None: log w


def _draw(seed=0, scale=0.5, dtype=np.float32):
  rng = np.random.default_rng(seed)
  d, logps = rng.normal(0, scale, (2, NUM_ROWS, WIDTH))
  anchor = -rng.exponential(1.5, d.shape)
  a = rng.normal(0, 1, (NUM_ROWS, 1)) * (rng.random((NUM_ROWS, 1)) > 0.1)
  mask = np.arange(WIDTH) < rng.integers(0, WIDTH + 1, (NUM_ROWS, 1))
  clean = lambda v: np.where(mask, v, 0).astype(dtype)
  return Tokens(clean(d), clean(anchor + d), clean(anchor), a.astype(dtype),
                mask)


def _keep(gone):
  """The gradient of w A, but for those gone."""
  return lambda t: Form(np.where(gone(t), 0, t.w * t.a))


def _parabola(shift):
  def form(t):
    pull = np.abs(t.a) * shift(t)
    return Form(t.w * (t.a - pull), t.w * (np.abs(t.a) + np.abs(pull)))
  return form


def _sigmoid(t):
  tau = np.where(t.a > 0, 1.0, 1.05)
  s = 1 / (1 + np.exp(-tau * (t.w - 1)))
  return Form(4 * s * (1 - s) * t.w * t.a)


def _geometric_mean(t):
  ends = np.log(np.where(t.a > 0, HIGH, LOW))
  ratio = np.exp(t.row_mean(np.where(t.gains, ends, t.d)))
  plain = ratio * t.a * np.ones_like(t.d)
  return Form(np.where(t.gains, 0, plain), plain=plain)


def _off_policy_mask(t):
  mean = t.row_mean(t.d)
  dropped = (mean < -0.5) & (t.a < 0) & t.mask
  return Form(np.where(t.gains | dropped, 0, t.w * t.a),
              moved=np.where(dropped, mean, t.d))


def _covariance(t):
  a = np.broadcast_to(t.a, t.d.shape)
  return (a - a[t.mask].mean()) * (t.logps - t.logps[t.mask].mean())


def _best(keys, t, eligible):
  """The 2e-4 of all tokens that have the largest keys, as a mask."""
  places = np.flatnonzero(eligible)
  order = places[np.argsort(-keys.ravel()[places], kind='stable')]
  picked = np.zeros(t.mask.size, bool)
  picked[order[:max(int(2e-4 * t.mask.sum()), 1)]] = True
  return picked.reshape(t.mask.shape)


def _covariance_clip(t):
  x = t.logps.astype(np.float32).view(np.uint32)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
    x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
  covariance = _covariance(t)
  picked = _best((x >> np.uint32(1)).astype(np.int64), t, t.mask & ~t.gains & (
      covariance > 1) & (covariance < 5))
  return Form(np.where(t.gains | picked, 0, t.w * t.a))


def _covariance_penalty(t):
  picked = _best(_covariance(t), t, t.mask)
  pull = np.where(picked, np.sign(t.d), 0)
  return Form(t.w * t.a - pull, t.w * np.abs(t.a) + np.abs(pull))


FORMS = {
    'pessimistic_min': _keep(lambda t: t.gains),
    'dual_clip': _keep(lambda t: t.gains | ((t.w > 3) & (t.a < 0))),
    'two_sided': _keep(lambda t: t.gains | ((t.w > 4) & (t.a < 0))),
    'unconditional': _keep(lambda t: (t.w < LOW) | (t.w > HIGH)),
    'none': _keep(lambda t: False),
    'unweighted': lambda t: Form(t.a * np.ones_like(t.d)),
    'clipped_weight': lambda t: Form(np.clip(t.w, LOW, HIGH) * t.a),
    'masked_weight': lambda t: Form(
        np.where(t.gains, 0, np.minimum(t.w, 20) * t.a)),
    'tapered_weight': lambda t: Form(
        np.where(t.a > 0, 1, np.minimum(t.w, 1)) * t.a),
    'flipped_weight': lambda t: Form(np.where(t.gains, 0, np.minimum(
        np.where(t.a > 0, 1 / t.w, t.w), 3) * t.a)),
    'gamma_weight': lambda t: Form(np.where(
        t.a > 0, t.w**2 * np.exp(3 * (1 - t.w)),
        t.w**3 * np.exp(2 * (1 - t.w))) * t.a),
    'soft_sigmoid': _sigmoid,
    'quadratic': _parabola(lambda t: (t.w - 1) / 0.2),
    'shift_quadratic': _parabola(
        lambda t: np.exp(t.anchor) * (t.w - 1) / 0.15),
    'smoothed': lambda t: Form(0.9 * t.w * t.a, plain=0.9 * t.w * t.a),
    'squared_log': lambda t: Form(
        t.a - 0.05 * t.d, np.abs(t.a) + np.abs(0.05 * t.d)),
    'rollback': lambda t: Form(np.where(t.gains, -0.3, 1) * t.w * t.a),
    'gradient_preserving': lambda t: Form(
        np.where(t.gains, np.clip(t.w, LOW, HIGH), t.w) * t.a),
    'geometric_mean': _geometric_mean,
    'off_policy_mask': _off_policy_mask,
    'covariance_clip': _covariance_clip,
    'covariance_penalty': _covariance_penalty,
}


def _run(gate, tokens, region=REGION, inside=0.0):
  """The gate's output, and minus its gradient by log p of unmasked tokens."""
  @jax.jit
  def call(step, tokens):
    def total(step):
      out = gate(gates.GateInputs(
          tokens.d + step, tokens.logps + step, tokens.a, inside, region,
          tokens.mask, tokens.anchor))
      return jnp.sum(jnp.where(tokens.mask, out.loss, 0)), out
    return jax.grad(total, has_aux=True)(step)

  slope, out = call(
      jnp.zeros(tokens.d.shape, tokens.d.dtype), jax.tree.map(
          jnp.asarray, tokens))
  return jax.tree.map(np.asarray, out), -np.asarray(slope)


def _form(name, tokens):
  """What the table says, or the gate itself in float64."""
  tokens = Tokens(*(v if v.dtype == bool else v.astype(np.float64)
                    for v in tokens))
  gate = gates.REGISTRY[name]()
  plain = gate.scale * tokens.w * tokens.a
  if name in FORMS:
    form = FORMS[name](tokens)
  else:
    with jax.enable_x64(True):
      form = Form(_run(gate, tokens)[1])
  return form._replace(
      size=np.maximum(np.abs(form.slope), form.size),
      plain=plain if form.plain is None else form.plain,
      moved=tokens.d if form.moved is None else form.moved)


class GateContractTest(parameterized.TestCase):

  def test_the_table_names_gates(self):
    self.assertLessEqual(set(FORMS), set(gates.REGISTRY))

  @parameterized.parameters(*gates.REGISTRY)
  def test_float32_equals_the_mask_and_weight_form(self, name):
    tokens = _draw()
    out, slope = _run(gates.REGISTRY[name](), tokens)
    form, mask = _form(name, tokens), tokens.mask
    self.assertEqual(out.loss.dtype, np.float32)
    # Relative to what is left, or to the terms that the rule subtracts.
    error = np.abs(slope - form.slope) / np.where(form.size > 0, form.size, 1)
    self.assertLessEqual(error[mask].max(), 1e-5)
    np.testing.assert_array_equal(slope[(form.slope == 0) & mask], 0)
    np.testing.assert_array_equal(slope[~mask], 0)

    changed = (form.slope != form.plain) & mask
    low, high = (flag & mask for flag in out[1:])
    np.testing.assert_array_equal(low | high, changed)
    # And not by the table alone, where float32 can show it.
    clear = np.abs(form.slope - form.plain) > 1e-4 * np.abs(form.plain)
    np.testing.assert_array_equal(
        (low | high)[clear],
        ~np.isclose(slope, form.plain, rtol=3e-5, atol=0)[clear])
    self.assertFalse((low & (form.moved >= 0)).any())
    self.assertFalse((high & (form.moved <= 0)).any())

  @parameterized.parameters(*gates.REGISTRY)
  def test_at_ratio_one_nothing_is_blocked(self, name):
    tokens = _draw(1, scale=0.0)
    gate = gates.REGISTRY[name]()
    out, slope = _run(gate, tokens)
    share = (out.blocked_low | out.blocked_high)[tokens.mask].mean()
    if gate.blocks_at_one:
      self.assertBetween(share, 1e-4, 2e-4)
    else:
      self.assertEqual(share, 0)
      np.testing.assert_allclose(
          slope, gate.scale * tokens.a * tokens.mask, rtol=1e-6)

  @parameterized.product(
      name=tuple(gates.REGISTRY),
      region=((-0.2, 0.25), (-np.inf, 0.25), (-0.2, np.inf)))
  def test_far_away_everything_is_finite(self, name, region):
    d = np.float32([[20, 20, 20, 0], [-20, -20, -20, 0], [20, -20, 20, 0],
                    [20, 0, 0, 0], [-20, 0, 0, 0], [0, 0, 0, 0]])
    a = np.float32([[1], [-1], [0], [-1], [1], [-1]])
    mask = np.broadcast_to(np.arange(4) < 3, d.shape)
    tokens = Tokens(d, d - 25 * mask, -25 * np.float32(mask), a, mask)
    for sign in (1, -1):
      out, slope = _run(
          gates.REGISTRY[name](), tokens._replace(a=sign * a),
          bounds.Region(*region))
      self.assertTrue(np.isfinite(out.loss).all())
      self.assertTrue(np.isfinite(slope).all())

  @parameterized.parameters(
      *(n for n in gates.REGISTRY if gates.REGISTRY[n].takes_inside))
  def test_a_penalty_inside_is_part_of_the_advantage(self, name):
    tokens = _draw(2)
    tokens = jax.tree.map(lambda v: v[:500], tokens)
    gate, inside = gates.REGISTRY[name](), np.float32(-0.4)
    out, slope = _run(gate, tokens, inside=inside)
    want = _run(gate, tokens._replace(a=tokens.a + inside))
    jax.tree.map(np.testing.assert_array_equal, (out, slope), want)

  @parameterized.parameters(*gates.REGISTRY)
  def test_is_documented_with_formula_blocks_and_source(self, name):
    text = gates.REGISTRY[name].__doc__
    for word in ('Source:', 'blocked', ' = '):
      self.assertIn(word, text)


if __name__ == '__main__':
  absltest.main()
