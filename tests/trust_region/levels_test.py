"""Which ratio a token has, and whose gradient."""
import math

from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import reduce
from rlclip.trust_region import bounds, gates, levels

MASK = jnp.array([[True, True, False], [False, False, False],
                  [True, True, True]])
VALUES = jnp.float32([[0.1, 0.3, 0], [0, 0, 0], [-0.2, 0.5, 0.3]])


def _gradient(level, reduction, values=VALUES):
  """By log p, of the importance-weighted objective with A = 1."""
  def total(values):
    weights = reduction(MASK)
    ratio = jnp.exp(levels.get(level)(values, MASK))
    return jnp.sum(ratio * weights.tokens) / weights.total
  return np.asarray(jax.grad(total)(values))


class LevelTest(parameterized.TestCase):

  @parameterized.parameters(*levels.REGISTRY)
  def test_is_linear_and_leaves_masked_entries_at_zero(self, name):
    level, other = levels.get(name), jnp.where(MASK, 0.7 * VALUES - 1, 0)
    np.testing.assert_allclose(
        level(VALUES - other, MASK), level(VALUES, MASK) - level(other, MASK),
        atol=1e-6)
    np.testing.assert_array_equal(level(VALUES, MASK)[~MASK], 0)
    np.testing.assert_array_equal(_gradient(name, reduce.TokenMean())[~MASK], 0)
    self.assertIn('Source:', levels.REGISTRY[name].__doc__)

  @parameterized.parameters(
      ('token', VALUES), ('sequence', [[.2, .2, 0], [0, 0, 0], [.2] * 3]),
      ('sequence_token', [[.2, .2, 0], [0, 0, 0], [.2] * 3]),
      ('sequence_product', [[.4, .4, 0], [0, 0, 0], [.6] * 3]),
      ('sequence_product_token', [[.4, .4, 0], [0, 0, 0], [.6] * 3]))
  def test_values(self, name, expected):
    np.testing.assert_allclose(
        levels.get(name)(VALUES, MASK), expected, rtol=1e-6)

  def test_gspo_token_has_the_gradient_of_gspo(self):
    gspo, token = (_gradient(name, reduce.SequenceMean())
                   for name in ('sequence', 'sequence_token'))
    np.testing.assert_allclose(token, gspo, rtol=1e-6)
    # s / (rows length): exp(0.2) / (2 2) in the first row.
    np.testing.assert_allclose(gspo[0, 0], math.exp(0.2) / 4, rtol=1e-6)

  def test_the_product_has_its_gradient_once_a_row(self):
    whole = _gradient('sequence_product', reduce.SequenceMean())
    tokens = _gradient('sequence_product_token', reduce.SequenceSum(1.0))
    np.testing.assert_allclose(tokens, whole, rtol=1e-6)
    np.testing.assert_allclose(whole[0, 0], math.exp(0.4) / 2, rtol=1e-6)

  def test_luspo_is_gspo_times_the_length(self):
    gspo, luspo = (_gradient('sequence', reduction) for reduction in (
        reduce.SequenceMean(), reduce.SequenceSum(1.0)))
    np.testing.assert_allclose(
        luspo, gspo * np.array([[2], [0], [3]]), rtol=1e-6)

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
