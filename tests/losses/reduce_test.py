"""Means that do not depend on how the batch was cut, by hand."""
from absl.testing import absltest, parameterized
import jax.numpy as jnp
import numpy as np

from rlclip.losses import reduce
from rlclip.types import Mean


def _mask(*lengths, width=8):
  return jnp.arange(width) < jnp.array(lengths)[:, None]


def _mean(reduction, values, mask):
  return reduce.mean(jnp.float32(values), mask, reduction(mask))


class ReduceTest(parameterized.TestCase):

  def test_token_mean_under_accumulation(self):
    # 8 tokens of loss 1 and 2 of loss 3: 14 / 10, not the mean of 1 and 3.
    parts = [_mean(reduce.TokenMean(), np.full((1, 8), loss), _mask(length))
             for length, loss in ((8, 1.0), (2, 3.0))]
    total = Mean(*map(sum, zip(*parts)))
    np.testing.assert_allclose(total.value(), 1.4, rtol=1e-6)

  def test_sequence_mean_counts_completions_alike(self):
    got = _mean(reduce.SequenceMean(), [[1.0] * 8, [3.0] * 8], _mask(8, 2))
    np.testing.assert_allclose(got.value(), 2.0, rtol=1e-6)

  @parameterized.parameters((None, 8.0), (4.0, 4.0))
  def test_sequence_sum_divides_by_a_constant(self, constant, divisor):
    got = _mean(
        reduce.SequenceSum(constant), [[1.0] * 8, [3.0] * 8], _mask(8, 2))
    np.testing.assert_allclose(
        got.value(), (8.0 + 6.0) / 2 / divisor, rtol=1e-6)

  def test_left_out_tokens_are_not_in_the_denominator(self):
    # 30 tokens of loss 1, of which a row of 5 is left out: 1, not 25 / 30.
    mask = _mask(8, 8, 5, 4, 5) & jnp.array([1, 1, 1, 1, 0], bool)[:, None]
    got = _mean(reduce.TokenMean(), np.ones((5, 8)), mask)
    self.assertEqual(float(got.value()), 1.0)

  @parameterized.parameters(*reduce.REGISTRY)
  def test_rows_without_tokens_weigh_nothing(self, name):
    reduction = reduce.REGISTRY[name]()
    values = np.arange(24.0).reshape(3, 8)
    values[1] = np.nan
    # Lengths whose reciprocals are exact, so that the sums are.
    full = _mean(reduction, values, _mask(4, 0, 8))
    short = _mean(reduction, values[[0, 2]], _mask(4, 8))
    np.testing.assert_array_equal(full, short)

  @parameterized.parameters(*reduce.REGISTRY)
  def test_parts_add_up_to_the_whole(self, name):
    reduction = reduce.REGISTRY[name]()
    values, mask = np.random.default_rng(0).normal(size=(4, 8)), _mask(
        1, 8, 3, 0)
    whole = _mean(reduction, values, mask)
    parts = [_mean(reduction, values[i:i + 1], mask[i:i + 1])
             for i in range(4)]
    np.testing.assert_allclose(
        [sum(p.total for p in parts), sum(p.weight for p in parts)], whole,
        rtol=1e-6)

  @parameterized.parameters(*reduce.REGISTRY)
  def test_an_empty_batch_is_zero(self, name):
    got = _mean(reduce.REGISTRY[name](), np.full((2, 8), np.nan), _mask(0, 0))
    self.assertEqual((float(got.value()), float(got.weight)), (0.0, 0.0))

  def test_a_constant_that_is_no_length_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'constant > 0, got 0'):
      reduce.SequenceSum(0)


if __name__ == '__main__':
  absltest.main()
