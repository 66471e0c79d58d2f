"""Gradients of the estimators by hand, and what makes no sense together."""
from absl.testing import absltest, parameterized
import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences
from rlclip.losses import Penalty
from rlclip.losses.penalty import ESTIMATORS

POLICY, REFERENCE = (0.3, -0.2, 0.5), (0.0, 0.4, -0.1)


def _on_policy(penalty):
  """Expected gradient over the three tokens, drawn from the policy itself."""
  logits, reference = jnp.float32(POLICY), jnp.float32(REFERENCE)
  held = jax.nn.log_softmax(logits)

  def loss(logits):
    logps = jax.nn.log_softmax(logits)
    target = jax.nn.log_softmax(reference)
    exact = divergences.get(penalty.measure).exact(logps, target)
    column = lambda x: jnp.broadcast_to(x, logps.shape)[:, None]
    out = penalty.beside(column(logps), column(target), column(held), {
        need: column(exact) for need in penalty.needs})
    return jnp.sum(jnp.exp(held) * out.value[:, 0])

  return jax.grad(loss)(logits)


class PenaltyTest(parameterized.TestCase):

  @parameterized.parameters(
      ('pathwise', (.02244, -.17942, .15698)),
      ('score', (.02244, -.17942, .15698)),
      ('exact', (.02244, -.17942, .15698)),
      ('prefix', (.02244, -.17942, .15698)),
      ('unweighted_k1', (0.0, 0.0, 0.0)),
      ('unweighted_k2', (.02244, -.17942, .15698)),
      ('unweighted_k3', (.059208, -.224725, .165516)))
  def test_one_token_on_policy(self, estimator, expected):
    got = _on_policy(Penalty('reverse_kl', 1.0, estimator=estimator))
    np.testing.assert_allclose(got, expected, atol=6e-6)

  def test_every_estimator_is_in_the_test_above(self):
    self.assertLen(ESTIMATORS, 7)

  @parameterized.parameters(*(
      n for n in divergences.names() if divergences.get(n).per_sample))
  def test_the_limit_is_reported_and_still_pushes_back(self, name):
    penalty = Penalty(name, 1.0, toward='anchor')
    for d in (-100.0, 100.0):
      zero = jnp.zeros((1, 1))
      value = lambda p: penalty.beside(p, zero, zero).value[0, 0]
      p = jnp.full((1, 1), d)
      self.assertTrue(bool(penalty.beside(p, zero, zero).limited))
      self.assertTrue(np.isfinite(value(p)))
      gradient = float(jax.grad(value)(p)[0, 0])
      self.assertTrue(np.isfinite(gradient))
      self.assertGreater(gradient * d, 0)

  def test_inside_is_minus_beta_times_the_slope(self):
    d = jnp.float32([[0.5]])
    forward = Penalty('forward_kl', 0.1, toward='anchor', estimator='score',
                      placement='inside', control_variate=-1.0)
    # Normalized forward KL: f'(w) - 1 = -1 / w.
    np.testing.assert_allclose(
        forward.inside(d), 0.1 * np.exp([[-0.5]]), rtol=1e-6)
    reverse = Penalty('reverse_kl', 0.1, toward='anchor', placement='inside')
    np.testing.assert_allclose(reverse.inside(d), [[-0.05]], rtol=1e-6)

  @parameterized.parameters(
      (dict(beta=0.0), 'beta > 0'),
      (dict(beta=float('nan')), 'beta > 0'),
      (dict(measure='forwardkl'), 'Unknown divergence'),
      (dict(toward='sampler'), 'toward must be one of'),
      (dict(estimator='k3'), 'estimator must be one of'),
      (dict(placement='within'), 'placement must be one of'),
      (dict(estimator='unweighted_k3', measure='forward_kl'), 'reverse KL'),
      (dict(estimator='unweighted_k3', placement='inside'), 'reverse KL'),
      (dict(estimator='pathwise', placement='inside', measure='forward_kl'),
       "estimator='score'"))
  def test_what_makes_no_sense_is_refused(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      Penalty(**options)


if __name__ == '__main__':
  absltest.main()
